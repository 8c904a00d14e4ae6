// tcp_output.h - the answers that one end of a connection sends, in order, between its own requests.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "softdev/common/device_limits.h"
#include "softdev/tcp/tcp_protocol.h"

namespace rdmacomm::softdev {

/// Answers to the peer's requests. The next frame of any kind can report that a request was executed. The data of a
/// READ is sent as the socket accepts it, and later answers wait for it.
/// Threads: the holder of the send queue's lock, unless stated otherwise.
class TcpOutput {
 public:
  /// A READ whose data is being sent from the target's memory.
  struct Reading {
    TcpRequest request;
    std::uint32_t moved = 0;
  };

  // For the thread that executes requests, one at a time. The send queue's lock is not needed.
  /// Announces that request number done() is being executed. A thread that has polled `messages` messages has seen that
  /// it was.
  void announce(std::uint32_t messages) noexcept {
    promise_.store(std::uint64_t{messages} << 32 | (done() + 1), std::memory_order_release);
  }
  void one_is_done() noexcept { done_.store(done() + 1, std::memory_order_release); }
  [[nodiscard]] std::uint32_t done() const noexcept { return done_.load(std::memory_order_acquire); }
  /// True if the peer does not know yet of all executed requests.
  [[nodiscard]] bool owes() const noexcept { return reported_.load(std::memory_order_relaxed) != done(); }
  /// The number of executed requests that the peer does not know of.
  [[nodiscard]] std::uint32_t owed() const noexcept { return done() - reported_.load(std::memory_order_relaxed); }

  /// The number of executed requests, as a thread that has polled `polled` messages sees it.
  [[nodiscard]] std::uint32_t done_for(std::uint32_t polled) const noexcept;
  /// The number that may be reported now. Requests behind a READ are reported after its data.
  [[nodiscard]] std::uint32_t reportable(std::uint32_t polled) const noexcept {
    return responses_.empty() ? done_for(polled) : responses_.front().number;
  }
  void note_reported(std::uint32_t done) noexcept { reported_.store(done, std::memory_order_relaxed); }

  /// True if something was reported since the last call. For the reporting thread.
  [[nodiscard]] bool take_reported() noexcept { return std::exchange(has_reported_, false); }

  /// Sends an answer, with `bytes` after it. It does not mark any further request as executed.
  void send_answer(TcpAnswer answer, std::span<const std::byte> bytes = {});
  /// The same for a READ or an atomic, which is executed by it.
  void respond(std::span<const std::byte> bytes);
  void respond_later(const TcpRequest& read);
  /// Reports all executed requests.
  void report_done();

  /// The bytes to send next. Requests may follow them.
  [[nodiscard]] std::span<std::byte> bytes() noexcept { return std::span(out_).subspan(sent_); }
  void sent(std::size_t bytes) noexcept;
  /// Puts the rest of a request before all other output, because its owner gives it up.
  void go_first(std::span<const std::byte> bytes);
  /// True if more output is unsent than a correct peer can cause. A correct peer limits its READs and atomics, and
  /// waits for the answer when a message waits for a receive.
  [[nodiscard]] bool is_flooded() const noexcept { return responses_.size() + ends_.size() > kMaxUnsent; }
  /// Allocated bytes.
  [[nodiscard]] std::size_t kept() const noexcept { return out_.capacity(); }

  /// True if READs, or answers behind them, wait.
  [[nodiscard]] bool has_responses() const noexcept { return !responses_.empty(); }
  /// True while the data of a READ is being sent: no other frame may be sent.
  [[nodiscard]] bool is_reading() const noexcept { return reading_.has_value(); }
  /// Starts the next response. Returns false: none waits.
  bool next_response();
  [[nodiscard]] Reading& reading() noexcept { return *reading_; }
  void end_reading() noexcept { reading_.reset(); }

 private:
  struct Response {
    std::uint32_t number;  // number of the first request that is not answered before it
    std::uint32_t done;    // the number of executed requests that it reports
    std::vector<std::byte> bytes;
    std::optional<TcpRequest> read;
  };
  /// kMaxReadDepth responses, kNotReady and kReady.
  static constexpr std::size_t kMaxUnsent = kMaxReadDepth + 2;

  [[nodiscard]] bool holds_back() const noexcept { return is_reading() || has_responses(); }
  void append(std::span<const std::byte> bytes) { out_.insert(out_.end(), bytes.begin(), bytes.end()); }
  void end_answer();

  std::atomic<std::uint32_t> done_{0};
  std::atomic<std::uint64_t> promise_{
      0};  // lower half: number of executed requests when the number of polled messages reaches the upper half
  std::atomic<std::uint32_t> reported_{0};
  bool has_reported_ = false;
  std::deque<Response> responses_;
  std::optional<Reading> reading_;
  std::vector<std::byte> out_;
  std::size_t sent_ = 0;
  std::deque<std::size_t> ends_;  // ends, in out_, of the unsent answers except kDone
  bool ends_with_done_ = false;   // the last frame in out_ is kDone
};

}  // namespace rdmacomm::softdev
