// log_pace.h - one line of a kind a while, however often there is cause for it. Private to the library.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <utility>

namespace rdmacomm {

/// Keeps what others can cause, as often as they like, from filling the log. Threads: any.
class LogPace {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kPeriod{10};

  /// Whether to say it: not within kPeriod of the last time. The number says how often it was kept back since then.
  [[nodiscard]] std::optional<std::uint64_t> due(Clock::time_point now = Clock::now()) {
    const std::lock_guard lock(mutex_);
    if (said_at_ && now - *said_at_ < kPeriod) {
      ++kept_back_;
      return {};
    }
    said_at_ = now;
    return std::exchange(kept_back_, 0);
  }

 private:
  std::mutex mutex_;
  std::optional<Clock::time_point> said_at_;
  std::uint64_t kept_back_ = 0;
};

}  // namespace rdmacomm
