// lane.h - one peer's path to the other: posts the operation of a cell, polls, and notices that the peer is lost.
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

/// The tools of the measurement loops of both peers. Threads: one at a time.
class Lane {
 public:
  /// The local role. Payloads of the two directions differ.
  enum class Side : std::uint8_t { kClient = 0, kServer = 1 };

  struct Parts {
    const EndPoint& endpoint;
    Workspace& workspace;
    const Plan& plan;
    const programs::TickClock& clock;
    Side side;
    bool yield_when_idle;              ///< if this process has only one CPU, which others need, too
    programs::Guest* guest = nullptr;  ///< on a server: the client, whose progress is recorded
    /// The peer counts as lost if no message is received and no operation completes for this long. The largest message
    /// gets more time than this: see time_on_slow_network().
    std::chrono::milliseconds still{60'000};
  };
  explicit Lane(const Parts& parts);

  [[nodiscard]] Side side() const noexcept { return side_; }
  [[nodiscard]] const EndPoint& endpoint() noexcept { return endpoint_; }
  [[nodiscard]] RDMAChannel& channel() noexcept { return channel_; }
  [[nodiscard]] const Plan& plan() const noexcept { return plan_; }
  [[nodiscard]] const programs::TickClock& clock() const noexcept { return clock_; }
  [[nodiscard]] Blocks blocks(const Cell& cell) { return {workspace_, theirs_, plan_, cell}; }

  /// kInline if the plan requires inline data for a payload of this size.
  [[nodiscard]] PostFlags payload_flags(const Cell& cell) const noexcept {
    const bool has_payload = cell.op == Op::kSend || cell.op == Op::kWrite || cell.op == Op::kWriteImm;
    return has_payload && cell.bytes <= plan_.inline_bytes ? PostFlags::kInline : PostFlags::kNone;
  }
  /// Posts the cell's operation, iteration `id`, on block `block`. The low 32 bits of `id` are its immediate data. For
  /// compare_swap, the counter is changed from `id` to `id` + 1. Returns  as the post functions of RDMAChannel
  [[nodiscard]] Outcome post(Op op, const Blocks& blocks, std::uint32_t block, std::uint64_t id,
                             PostFlags flags) noexcept;
  [[nodiscard]] Outcome post_receive(Op op, const Blocks& blocks, std::uint32_t block) noexcept {
    return channel_.post_recv(op == Op::kSend ? SliceList(blocks.in(block)) : SliceList(), {.id = block});
  }

  /// Takes all pending completions. Returns  the first failed one as an error; as RDMAChannel::poll
  [[nodiscard]] Status poll(std::span<const Completion>& completions);
  /// A message was received, or an operation completed. poll() calls this when it finds completions.
  void note_progress() noexcept {
    ++progress_;
    if (guest_ != nullptr) guest_->note_progress();
  }
  /// Call it if only a completion can bring progress. Waits for one in the way that the flags require (spinning: as
  /// spin()); the next poll() returns it.
  /// Returns  as EndPoint::wait; kTimeout: there was no progress for Parts::still
  [[nodiscard]] Status idle();
  /// Call it if nothing is to be done. Checks at intervals whether the peer is still connected. If only one CPU is
  /// available, yields it to other threads.
  /// Returns  as EndPoint::status(): kPeerLost; kTimeout: there was no progress for Parts::still
  [[nodiscard]] Status spin();
  /// Polls until the completion of the posted request `id` arrives. Returns at once if poll() has returned it, and none
  /// after it. Receives that complete meanwhile are dropped.
  [[nodiscard]] Status wait_for(std::uint64_t id);
  /// A part begins: ids start again, and so does the timeout without progress.
  void begin_part() noexcept {
    last_complete_ = kNone;
    note_progress();
  }

  /// The error for a post that was refused.
  [[nodiscard]] Error refused(Outcome post, const Cell& cell) const;
  /// `failure`, or the peer's end if that is its cause: see programs::with_cause().
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
  std::uint64_t last_complete_ = kNone;  // id of the last local request that completed
  std::uint32_t idle_calls_ = 0;
  std::uint64_t progress_ = 0;
  std::uint64_t seen_progress_ = 0;           // progress_ when spin() last saw it change
  Deadline still_until_ = Deadline::never();  // the deadline for further progress
  std::array<Completion, 32> completions_;
  std::size_t held_ = 0;  // number of completions that idle() found, for the next poll()
};

}  // namespace rdmacomm::benchmark
