// Bandwidth and rate: up to the queue depth of operations at a time, one way or both.
#include <algorithm>
#include <optional>

#include "lat_bw_benchmark/part.h"

namespace rdmacomm::benchmark {
namespace {

class StreamPart final : public Part {
 public:
  StreamPart(Lane& lane, const Cell& cell, const Order& order)
      : Part(lane, cell, order),
        depth_(
            std::min<std::uint64_t>(lane.plan().queue_depth, static_cast<std::uint64_t>(lane.channel().send_depth()))),
        signal_every_(
            std::clamp<std::uint64_t>(kMaxUnsignaledBytes / cell.bytes, 1, std::max<std::uint64_t>(depth_ / 4, 1))) {}

  Status operate() override {
    const std::uint64_t began = lane_.clock().now();
    while (complete_ < sends() || received_ < receives()) {
      const std::uint64_t posted_before = posted_;
      if (complete_ < sends()) {
        if (Status posted = post_some(); !posted.ok()) return posted;
      }
      std::span<const Completion> completions;
      if (Status polled = lane_.poll(completions); !polled.ok()) return polled;
      for (const Completion& completion : completions) {
        if (Status taken = take(completion); !taken.ok()) return taken;
      }
      if (complete_ == sends() && elapsed_ticks_ == 0) elapsed_ticks_ = lane_.clock().now() - began;
      if (!completions.empty() || posted_ != posted_before) continue;
      if (Status here = lane_.idle(); !here.ok()) return here;
    }
    return {};
  }

 protected:
  [[nodiscard]] std::uint64_t sends() const override {
    const bool active = lane_.side() == Lane::Side::kClient || cell_.metric == Metric::kBothWays;
    return active ? order_.iterations : 0;
  }
  [[nodiscard]] std::uint64_t receives() const override {
    const bool target = lane_.side() == Lane::Side::kServer || cell_.metric == Metric::kBothWays;
    return target && needs_receives(cell_.op) ? order_.iterations : 0;
  }

 private:
  /// Posts at most kHandful operations, so that both directions make progress.
  Status post_some() {
    constexpr std::uint64_t kHandful = 8;
    const std::uint64_t limit = std::min({sends(), complete_ + depth_, posted_ + kHandful});
    while (posted_ < limit) {
      const bool signaled = (posted_ + 1) % signal_every_ == 0 || posted_ + 1 == sends();
      const PostFlags flags = flags_ | (signaled ? PostFlags::kNone : PostFlags::kUnsignaled);
      const Outcome posted = lane_.post(cell_.op, blocks_, block_, posted_, flags);
      if (posted == Errc::kSendQueueFull) return {};
      if (!posted) return lane_.refused(posted, cell_);
      ++posted_;
      block_ = blocks_.next(block_);
    }
    return {};
  }

  Status take(const Completion& completion) {
    switch (completion.operation) {
      case Operation::kRecv:
        ++received_;
        verifier_.check(blocks_.in(static_cast<std::uint32_t>(completion.id)).bytes(), their_seed(),
                        "a received message");
        return post_next_receive();
      case Operation::kRecvWriteImm:
        ++received_;
        verifier_.check(blocks_.in(blocks_.of(completion.immediate)).bytes(), their_seed(),
                        "memory written by WRITE_WITH_IMM");
        return post_next_receive();
      case Operation::kRead: check_read(completion.id); [[fallthrough]];
      default: complete_ = completion.id + 1; return {};
    }
  }

  /// All READs up to `id`, which was signaled, are complete.
  void check_read(std::uint64_t id) {
    if (!verifier_.on()) return;
    for (std::uint64_t i = complete_; i <= id; ++i) {
      verifier_.check(blocks_.in(blocks_.of(i)).bytes(), their_seed(), "memory read by READ");
    }
  }

  /// Progress is seen by completions, so on a slow network one must arrive every few seconds at least.
  static constexpr std::uint64_t kMaxUnsignaledBytes = std::uint64_t{256} << 20;

  const std::uint64_t depth_;
  const std::uint64_t signal_every_;
  std::uint64_t posted_ = 0;
  std::uint64_t complete_ = 0;
  std::uint64_t received_ = 0;
  std::uint32_t block_ = 0;
};

}  // namespace

std::unique_ptr<Part> make_stream_part(Lane& lane, const Cell& cell, const Order& order) {
  return std::make_unique<StreamPart>(lane, cell, order);
}

}  // namespace rdmacomm::benchmark
