// One operation at a time, each one timed.
#include <atomic>
#include <cstring>

#include "base/spin_lock.h"
#include "lat_bw_benchmark/part.h"

namespace rdmacomm::benchmark {
namespace {

/// From posting to the operation's own completion. The server only stands ready.
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

/// There and back: the client posts, the server answers with the same operation. Half of that is one way.
///
/// Way, which derives from it, has
///   void stamp(block, iteration)      prepares the payload, as far as that belongs to the measurement
///   Status receive(block, iteration)  waits until the peer's message is there
///   void check(block, iteration)      verifies it. Before this side sends again: what the peer then sends may go to the same place
///   Status clear_up(iteration)        does what is to be done once an iteration is over
/// None of them is virtual: four such calls are a tenth of a round trip through memory.
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

  // A message may be repeated until the peer has it: its memory is not touched before the peer's next one tells that.
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
    // Only the last one's completion is of interest; that the others are complete, the answers tell.
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

/// SEND and WRITE_WITH_IMM: a message shows by the completion of a receive.
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

/// WRITE: nothing tells the receiver but its memory. It polls the last byte, which is another one each time.
class PolledRoundTrip final : public RoundTripPart<PolledRoundTrip> {
 public:
  using RoundTripPart::RoundTripPart;

  void stamp(std::uint32_t block, std::uint64_t /*iteration*/) { blocks_.out(block).bytes().back() = value_; }
  Status receive(std::uint32_t block, std::uint64_t /*iteration*/) {
    std::atomic_ref<std::byte> last(blocks_.in(block).bytes().back());
    for (std::uint32_t polls = 1; last.load(std::memory_order_acquire) != value_; ++polls) {
      // Without it many reads of the line are under way, which take it away from the writer just before it is written.
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
    // Completions of failed WRITEs come here, and successful ones make room in the send queue.
    if (iteration % 16 != 0) return {};
    std::span<const Completion> completions;
    return lane_.poll(completions);
  }

 protected:
  [[nodiscard]] std::uint64_t receives() const override { return 0; }

 private:
  // What comes while the completion queue is asked is seen later: what comes through memory comes before the first look.
  static constexpr std::uint32_t kFirstLook = 16;
  static constexpr std::uint32_t kLookEvery = 4;

  /// Never 0, and another one at the next visit to the same block.
  [[nodiscard]] std::byte value_of(std::uint64_t iteration) const noexcept {
    const std::uint64_t visit = blocks_.count() == 1 ? iteration : iteration / blocks_.count();
    return static_cast<std::byte>(visit % 255 + 1);
  }
  /// Whether waiting still makes sense.
  Status look() {
    std::span<const Completion> completions;
    if (Status polled = lane_.poll(completions); !polled.ok()) return polled;
    return lane_.spin();
  }

  std::byte value_ = value_of(0);  // of this iteration's message
};

}  // namespace

std::unique_ptr<Part> make_latency_part(Lane& lane, const Cell& cell, const Order& order, programs::Samples* samples) {
  if (cell.metric == Metric::kCompletion) return std::make_unique<CompletionPart>(lane, cell, order, samples);
  if (needs_receives(cell.op)) return std::make_unique<ReceivedRoundTrip>(lane, cell, order, samples);
  return std::make_unique<PolledRoundTrip>(lane, cell, order, samples);
}

}  // namespace rdmacomm::benchmark
