// tcp_output.h - what one end of a connection answers, in order, between the requests that it sends itself.
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

/// Answers to the other end's requests. That one was carried out can be said by whatever goes out next; what a READ brings goes out
/// as the connection takes it, and what comes after it waits.
/// Threads: the holder of the queue pair's send queue, unless it says otherwise.
class TcpOutput {
 public:
  /// A READ whose bytes go from the target's memory to the socket.
  struct Reading {
    TcpRequest request;
    std::uint32_t moved = 0;
  };

  // Who carries requests out, one thread at a time, says so; the send queue need not be held.
  /// Request number done() is being carried out; whoever polls that many messages has seen that it was.
  void announce(std::uint32_t messages) noexcept {
    promise_.store(std::uint64_t{messages} << 32 | (done() + 1), std::memory_order_release);
  }
  void one_is_done() noexcept { done_.store(done() + 1, std::memory_order_release); }
  [[nodiscard]] std::uint32_t done() const noexcept { return done_.load(std::memory_order_acquire); }
  /// The other end does not know yet what was carried out.
  [[nodiscard]] bool owes() const noexcept { return said_.load(std::memory_order_relaxed) != done(); }
  /// How many requests it does not know of.
  [[nodiscard]] std::uint32_t owed() const noexcept { return done() - said_.load(std::memory_order_relaxed); }

  /// How many requests were carried out, as somebody sees it who has polled so many messages.
  [[nodiscard]] std::uint32_t done_for(std::uint32_t polled) const noexcept;
  /// What may be said to be done: what is behind a READ waits for its bytes.
  [[nodiscard]] std::uint32_t sayable(std::uint32_t polled) const noexcept {
    return responses_.empty() ? done_for(polled) : responses_.front().number;
  }
  void said(std::uint32_t done) noexcept { said_.store(done, std::memory_order_relaxed); }

  /// Whether something was said since the last time. Of the thread that says it.
  [[nodiscard]] bool take_news() noexcept { return std::exchange(has_news_, false); }

  /// Answers a request, `bytes` behind the head; nothing is done by it but what was done before.
  void say(TcpAnswer answer, std::span<const std::byte> bytes = {});
  /// The same of a READ or an atomic, which is done by it.
  void respond(std::span<const std::byte> bytes);
  void respond_later(const TcpRequest& read);
  /// Says what is owed.
  void say_done();

  /// What is to go out next; other requests may follow it.
  [[nodiscard]] std::span<std::byte> bytes() noexcept { return std::span(out_).subspan(sent_); }
  void sent(std::size_t bytes) noexcept;
  /// The last words of a request that nobody will be able to finish: they go before all else.
  void go_first(std::span<const std::byte> bytes);
  /// More is unsent than somebody can have asked for who knows how many READs and atomics may be under way, and hears that a message
  /// waits for a receive before the next one does.
  [[nodiscard]] bool is_flooded() const noexcept { return responses_.size() + ends_.size() > kMaxUnsent; }
  /// Bytes of memory.
  [[nodiscard]] std::size_t kept() const noexcept { return out_.capacity(); }

  /// There are READs to answer, or answers behind them.
  [[nodiscard]] bool has_responses() const noexcept { return !responses_.empty(); }
  /// A READ's bytes are under way: nothing else may go out.
  [[nodiscard]] bool is_reading() const noexcept { return reading_.has_value(); }
  /// Takes the next response up; false: there is none.
  bool next_response();
  [[nodiscard]] Reading& reading() noexcept { return *reading_; }
  void end_reading() noexcept { reading_.reset(); }

 private:
  struct Response {
    std::uint32_t number;  // of the first request that is not answered before it
    std::uint32_t done;    // what it says
    std::vector<std::byte> bytes;
    std::optional<TcpRequest> read;
  };
  /// kMaxReadDepth, kNotReady and kReady.
  static constexpr std::size_t kMaxUnsent = kMaxReadDepth + 2;

  [[nodiscard]] bool holds_back() const noexcept { return is_reading() || has_responses(); }
  void append(std::span<const std::byte> bytes) { out_.insert(out_.end(), bytes.begin(), bytes.end()); }
  void end_answer();

  std::atomic<std::uint32_t> done_{0};
  std::atomic<std::uint64_t> promise_{
      0};  // once so many messages (upper half) are polled, so many are done (lower half)
  std::atomic<std::uint32_t> said_{0};
  bool has_news_ = false;
  std::deque<Response> responses_;
  std::optional<Reading> reading_;
  std::vector<std::byte> out_;
  std::size_t sent_ = 0;
  std::deque<std::size_t> ends_;  // in out_, of the answers that are not sent whole; but for kDone
  bool ends_with_done_ = false;   // out_, the last frame
};

}  // namespace rdmacomm::softdev
