// sender_news.h - which of many send queues have something for a poll.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace rdmacomm::softdev {

class SoftQp;

/// A word for each send queue of one completion queue. A queue pair writes its word when it has finished a request, and
/// when its requests begin or cease to wait. So a poll compares words that are side by side, and visits only the queue
/// pairs with news. With few queue pairs it is faster to visit all of them, and their threads share no cache lines.
/// Threads: one at a time, the holder of the completion queue's lock; the words are written by any thread.
class SenderNews {
 public:
  /// The number of send queues from which on the words pay.
  static constexpr std::size_t kWorthwhile = 64;

  /// The word for a number of finished requests.
  [[nodiscard]] static constexpr std::uint32_t word(std::uint32_t finished, bool needs_retries) noexcept {
    return finished << 1 | (needs_retries ? 1U : 0U);
  }

  void add(SoftQp& qp);
  /// After this returns, `qp` does not access its word.
  void remove(SoftQp& qp);
  /// Returns the number of completions, at most `count`.
  int poll(int count, ibv_wc* out) noexcept;

 private:
  struct alignas(64) Group {
    static constexpr std::size_t kSize = 64;
    std::array<std::atomic<std::uint32_t>, kSize> now{};
    std::array<std::uint32_t, kSize> seen{};  // what a poll has seen of it
    std::array<SoftQp*, kSize> queue_pairs{};
    [[nodiscard]] bool has_news() const noexcept;
  };
  [[nodiscard]] std::size_t places() const noexcept { return groups_.size() * Group::kSize; }
  int poll_from(std::size_t begin, std::size_t end, int count, ibv_wc* out) noexcept;

  std::vector<std::unique_ptr<Group>> groups_;  // a group stays at its address
  std::size_t next_ = 0;                        // place at which the next poll begins, so that each gets its turn
};

}  // namespace rdmacomm::softdev
