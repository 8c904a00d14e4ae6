// Latency: one operation at a time, each timed separately.
#include <atomic>
#include <cstring>

#include "base/spin_lock.h"
#include "lat_bw_benchmark/part.h"

namespace rdmacomm::benchmark {
namespace {

/// Measures from posting to the operation's own completion. The server does not take part.
class CompletionPart final : public Part {
 public:
  CompletionPart(Lane& lane, const Cell& cell, const Order& order, programs::Samples* samples)
      : Part(lane, cell, order), samples_(samples) {}

  Status operate() override {
    if (lane_.side() == Lane::Side::kServer) return {};
    const std::uint64_t began = lane_.clock().now();
    std::uint32_t block = 0;
    for (std::uint64_t i = 0; i < order_.iterations; ++i, block = blocks_.next(block)) {
      const std::uint64_t before = lane_.clock().now();
      if (const Outcome posted = lane_.post(cell_.op, blocks_, block, i, flags_); !posted) {
        return lane_.refused(posted, cell_);
      }
      if (Status done = lane_.wait_for(i); !done.ok()) return done;
      samples_->add(lane_.clock().now() - before);
      if (verifier_.on()) check(block, i);
    }
    elapsed_ticks_ = lane_.clock().now() - began;
    return {};
  }

 protected:
  [[nodiscard]] std::uint64_t sends() const override {
    return lane_.side() == Lane::Side::kClient ? order_.iterations : 0;
  }
  [[nodiscard]] std::uint64_t receives() const override { return 0; }

 private:
  void check(std::uint32_t block, std::uint64_t iteration) {
    if (cell_.op == Op::kRead) verifier_.check(blocks_.in(block).bytes(), their_seed(), "memory read by READ");
    if (!is_atomic(cell_.op)) return;
    std::uint64_t old = 0;
    std::memcpy(&old, blocks_.in(block).data(), sizeof(old));
    verifier_.check_number(old, iteration, "the old value that an atomic returned");
  }

  programs::Samples* samples_;
};

/// A round trip: the client posts, and the server answers with the same operation. One way is half of the time.
///
/// Way, the derived class, has
///   void stamp(block, iteration)      prepares the payload, if that is part of the measurement
///   Status receive(block, iteration)  waits until the peer's message has arrived
///   void check(block, iteration)      verifies it, before the next local send allows the peer to overwrite it
///   Status clear_up(iteration)        finishes an iteration
/// The functions are not virtual, because four virtual calls take a tenth of a round trip through memory.
template <typename Way>
class RoundTripPart : public Part {
 public:
  RoundTripPart(Lane& lane, const Cell& cell, const Order& order, programs::Samples* samples)
      : Part(lane, cell, order), samples_(samples) {}

  Status operate() override {
    const std::uint64_t began = lane_.clock().now();
    const bool client = lane_.side() == Lane::Side::kClient;
    std::uint32_t block = 0;
    for (std::uint64_t i = 0; i < order_.iterations; ++i, block = blocks_.next(block)) {
      if (Status done = client ? ask(block, i) : answer(block, i); !done.ok()) return done;
      if (Status cleared = way().clear_up(i); !cleared.ok()) return cleared;
    }
    elapsed_ticks_ = lane_.clock().now() - began;
    return lane_.wait_for(order_.iterations - 1);
  }

 protected:
  [[nodiscard]] std::uint64_t sends() const override { return order_.iterations; }

 private:
  [[nodiscard]] Way& way() noexcept { return static_cast<Way&>(*this); }

  // A message may be retransmitted until the peer has it, so its memory is not changed before the peer's answer has
  // arrived.
  Status ask(std::uint32_t block, std::uint64_t i) {
    fill_out(block, my_seed() + i);
    const std::uint64_t before = lane_.clock().now();
    if (Status sent = send(block, i); !sent.ok()) return sent;
    if (Status received = way().receive(block, i); !received.ok()) return received;
    samples_->add((lane_.clock().now() - before) / 2);
    way().check(block, i);
    return {};
  }
  Status answer(std::uint32_t block, std::uint64_t i) {
    if (Status received = way().receive(block, i); !received.ok()) return received;
    way().check(block, i);
    fill_out(block, my_seed() + i);
    return send(block, i);
  }
  Status send(std::uint32_t block, std::uint64_t i) {
    way().stamp(block, i);
    // Only the last completion is needed: the answers prove that the earlier operations are complete.
    const PostFlags signal = i + 1 == order_.iterations ? PostFlags::kNone : PostFlags::kUnsignaled;
    for (;;) {
      const Outcome posted = lane_.post(cell_.op, blocks_, block, i, flags_ | signal);
      if (posted) return {};
      if (posted != Errc::kSendQueueFull) return lane_.refused(posted, cell_);
      std::span<const Completion> completions;
      if (Status polled = lane_.poll(completions); !polled.ok()) return polled;
      if (Status here = lane_.spin(); !here.ok()) return here;
    }
  }

  programs::Samples* samples_;
};

/// SEND and WRITE_WITH_IMM: the completion of a receive reports a message.
class ReceivedRoundTrip final : public RoundTripPart<ReceivedRoundTrip> {
 public:
  using RoundTripPart::RoundTripPart;

  void stamp(std::uint32_t /*block*/, std::uint64_t /*iteration*/) {}
  Status receive(std::uint32_t /*block*/, std::uint64_t /*iteration*/) {
    for (;;) {
      std::span<const Completion> completions;
      if (Status polled = lane_.poll(completions); !polled.ok()) return polled;
      for (const Completion& completion : completions) {
        if (completion.operation == Operation::kRecv || completion.operation == Operation::kRecvWriteImm) return {};
      }
      if (!completions.empty()) continue;
      if (Status here = lane_.idle(); !here.ok()) return here;
    }
  }
  void check(std::uint32_t block, std::uint64_t iteration) {
    verifier_.check(blocks_.in(block).bytes(), their_seed() + iteration, "a received message");
  }
  Status clear_up(std::uint64_t /*iteration*/) { return post_next_receive(); }

 protected:
  [[nodiscard]] std::uint64_t receives() const override { return order_.iterations; }
};

/// WRITE: the receiver sees a message only in its memory. It polls the last byte, whose value changes each time.
class PolledRoundTrip final : public RoundTripPart<PolledRoundTrip> {
 public:
  using RoundTripPart::RoundTripPart;

  void stamp(std::uint32_t block, std::uint64_t /*iteration*/) { blocks_.out(block).bytes().back() = value_; }
  Status receive(std::uint32_t block, std::uint64_t /*iteration*/) {
    std::atomic_ref<std::byte> last(blocks_.in(block).bytes().back());
    for (std::uint32_t polls = 1; last.load(std::memory_order_acquire) != value_; ++polls) {
      // Without a pause, many reads of the cache line would be in flight, and take it from the writer just before it
      // writes.
      pause_core();
      if (polls < kFirstLook || polls % kLookEvery != 0) continue;
      if (Status failed = look(); !failed.ok()) return failed;
    }
    lane_.note_progress();
    return {};
  }
  void check(std::uint32_t block, std::uint64_t iteration) {
    const auto bytes = blocks_.in(block).bytes();
    verifier_.check(bytes.first(bytes.size() - 1), their_seed() + iteration, "memory written by WRITE");
  }
  Status clear_up(std::uint64_t iteration) {
    value_ = value_of(iteration + 1);
    // Polls for failed WRITEs. Successful completions make room in the send queue.
    if (iteration % 16 != 0) return {};
    std::span<const Completion> completions;
    return lane_.poll(completions);
  }

 protected:
  [[nodiscard]] std::uint64_t receives() const override { return 0; }

 private:
  // A message that arrives while the completion queue is polled is seen later. Messages through memory arrive before
  // the first poll.
  static constexpr std::uint32_t kFirstLook = 16;
  static constexpr std::uint32_t kLookEvery = 4;

  /// Never 0, and different at the next use of the same block.
  [[nodiscard]] std::byte value_of(std::uint64_t iteration) const noexcept {
    const std::uint64_t visit = blocks_.count() == 1 ? iteration : iteration / blocks_.count();
    return static_cast<std::byte>(visit % 255 + 1);
  }
  /// Whether waiting is still useful.
  Status look() {
    std::span<const Completion> completions;
    if (Status polled = lane_.poll(completions); !polled.ok()) return polled;
    return lane_.spin();
  }

  std::byte value_ = value_of(0);  // of the message of this iteration
};

}  // namespace

std::unique_ptr<Part> make_latency_part(Lane& lane, const Cell& cell, const Order& order, programs::Samples* samples) {
  if (cell.metric == Metric::kCompletion) return std::make_unique<CompletionPart>(lane, cell, order, samples);
  if (needs_receives(cell.op)) return std::make_unique<ReceivedRoundTrip>(lane, cell, order, samples);
  return std::make_unique<PolledRoundTrip>(lane, cell, order, samples);
}

}  // namespace rdmacomm::benchmark
