// log_pace.h - at most one log line of a kind per period. Private to the library.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <utility>

namespace rdmacomm {

/// Prevents peers from filling the log with events that they can cause at any rate. Threads: any.
class LogPace {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kPeriod{10};

  /// Empty: do not log, because the last line was less than kPeriod ago. Otherwise the number of lines that were
  /// suppressed since then.
  [[nodiscard]] std::optional<std::uint64_t> due(Clock::time_point now = Clock::now()) {
    const std::lock_guard lock(mutex_);
    if (logged_at_ && now - *logged_at_ < kPeriod) {
      ++suppressed_;
      return {};
    }
    logged_at_ = now;
    return std::exchange(suppressed_, 0);
  }

 private:
  std::mutex mutex_;
  std::optional<Clock::time_point> logged_at_;
  std::uint64_t suppressed_ = 0;
};

}  // namespace rdmacomm
