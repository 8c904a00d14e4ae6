// rate_limit.h - limits the bytes per second.
#pragma once

#include <chrono>
#include <cstdint>

namespace rdmacomm::copying {

/// Computes when to send. Unused time is lost, except for a tenth of a second.
class RateLimit {
 public:
  using Clock = std::chrono::steady_clock;
  /// bytes_per_second  0: no limit
  explicit RateLimit(std::uint64_t bytes_per_second) : rate_(bytes_per_second) {}

  [[nodiscard]] bool bounded() const noexcept { return rate_ != 0; }
  /// The most bytes to send at once: those of a tenth of a second, and at least 4096.
  [[nodiscard]] std::uint64_t most() const noexcept;
  /// `bytes` are sent now. Returns  when the next bytes may be sent
  [[nodiscard]] Clock::time_point take(std::uint64_t bytes, Clock::time_point now);

 private:
  const std::uint64_t rate_;
  Clock::time_point free_at_{};
};

}  // namespace rdmacomm::copying
