// lane.h - one side's way to the other: posting the operation of a cell, polling, and noticing that the peer is gone.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <span>
#include <utility>

#include "lat_bw_benchmark/plan.h"
#include "lat_bw_benchmark/workspace.h"
#include "rdmacomm/channel.h"
#include "rdmacomm/endpoint.h"
#include "rdmacomm/result.h"
#include "support/delivery.h"
#include "support/guest_places.h"
#include "support/peer_loss.h"
#include "support/tick_clock.h"

namespace rdmacomm::benchmark {

/// What both sides' measurement loops work with. Threads: one.
class Lane {
 public:
  /// Which end of the connection this is: payloads of the two directions differ.
  enum class Side : std::uint8_t { kClient = 0, kServer = 1 };

  struct Parts {
    const EndPoint& endpoint;
    Workspace& workspace;
    const Plan& plan;
    const programs::TickClock& clock;
    Side side;
    bool yield_when_idle;              ///< where this process has one CPU only, which others need, too
    programs::Guest* guest = nullptr;  ///< of a server: the client, whose progress is noted
    /// The peer is given up if for so long nothing is received and no operation completes. The largest message gets
    /// more time than this: as time_on_slow_network().
    std::chrono::milliseconds still{60'000};
  };
  explicit Lane(const Parts& parts);

  [[nodiscard]] Side side() const noexcept { return side_; }
  [[nodiscard]] const EndPoint& endpoint() noexcept { return endpoint_; }
  [[nodiscard]] RDMAChannel& channel() noexcept { return channel_; }
  [[nodiscard]] const Plan& plan() const noexcept { return plan_; }
  [[nodiscard]] const programs::TickClock& clock() const noexcept { return clock_; }
  [[nodiscard]] Blocks blocks(const Cell& cell) { return {workspace_, theirs_, plan_, cell}; }

  /// kInline where the plan wants a payload of this size inline.
  [[nodiscard]] PostFlags payload_flags(const Cell& cell) const noexcept {
    const bool has_payload = cell.op == Op::kSend || cell.op == Op::kWrite || cell.op == Op::kWriteImm;
    return has_payload && cell.bytes <= plan_.inline_bytes ? PostFlags::kInline : PostFlags::kNone;
  }
  /// Posts iteration `id` of the cell's operation on block `block`. The low 32 bits of `id` are its immediate data; the
  /// counter, for compare_swap, goes from `id` to `id` + 1. Returns  as RDMAChannel's post functions
  [[nodiscard]] Outcome post(Op op, const Blocks& blocks, std::uint32_t block, std::uint64_t id,
                             PostFlags flags) noexcept;
  [[nodiscard]] Outcome post_receive(Op op, const Blocks& blocks, std::uint32_t block) noexcept {
    return channel_.post_recv(op == Op::kSend ? SliceList(blocks.in(block)) : SliceList(), {.id = block});
  }

  /// Takes the completions that there are. Returns  the first failed one as an error; as RDMAChannel::poll
  [[nodiscard]] Status poll(std::span<const Completion>& completions);
  /// Something was received from the peer, or an operation completed. poll() calls this when it finds completions.
  void note_progress() noexcept {
    ++progress_;
    if (guest_ != nullptr) guest_->note_progress();
  }
  /// To be called when there was nothing to do and a completion is all that can change that: waits for one, which the
  /// next poll() has, in the way that the flags say; where that is spinning, as spin().
  /// Returns  as EndPoint::wait; kTimeout: there was no progress for Parts::still
  [[nodiscard]] Status idle();
  /// To be called when there was nothing to do: looks now and then whether the peer is still there, and lets others run
  /// where there is one CPU only.
  /// Returns  as EndPoint::status(): kPeerLost; kTimeout: there was no progress for Parts::still
  [[nodiscard]] Status spin();
  /// Polls until the completion of the posted request `id` has come, or returns at once where poll() has seen it and
  /// none since. Receives that come meanwhile are dropped.
  [[nodiscard]] Status wait_for(std::uint64_t id);
  /// A part begins: ids start again, and so does the time without progress.
  void begin_part() noexcept {
    last_complete_ = kNone;
    note_progress();
  }

  /// The error of a post that was refused.
  [[nodiscard]] Error refused(Outcome post, const Cell& cell) const;
  /// `failure`, or the peer's end where that is its cause: see programs::with_cause().
  [[nodiscard]] Status with_cause(Status failure) const { return programs::with_cause(endpoint_, std::move(failure)); }

 private:
  [[nodiscard]] Error no_progress() const;

  const EndPoint& endpoint_;
  RDMAChannel& channel_;
  const bool direct_;  // the channel has a completion queue of its own
  Workspace& workspace_;
  const RemoteRegion theirs_;
  const Plan& plan_;
  const programs::TickClock& clock_;
  const Side side_;
  const bool yield_when_idle_;
  programs::Guest* const guest_;
  const std::chrono::nanoseconds still_;
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};
  std::uint64_t last_complete_ = kNone;  // id of the last request of ours that completed
  std::uint32_t idle_calls_ = 0;
  std::uint64_t progress_ = 0;
  std::uint64_t seen_progress_ = 0;           // progress_ when spin() last saw it change
  Deadline still_until_ = Deadline::never();  // without further progress
  std::array<Completion, 32> completions_;
  std::size_t held_ = 0;  // of these: found by idle(), for the next poll()
};

}  // namespace rdmacomm::benchmark
