// rate_limit.h - no more than so many bytes a second.
#pragma once

#include <chrono>
#include <cstdint>

namespace rdmacomm::copying {

/// Says how long to wait. What was not used for a while is lost, but for a tenth of a second.
class RateLimit {
 public:
  using Clock = std::chrono::steady_clock;
  /// bytes_per_second  0: no bound
  explicit RateLimit(std::uint64_t bytes_per_second) : rate_(bytes_per_second) {}

  [[nodiscard]] bool bounded() const noexcept { return rate_ != 0; }
  /// So many may go at once: what a tenth of a second has, 4096 at least.
  [[nodiscard]] std::uint64_t most() const noexcept;
  /// `bytes` go now. Returns  when the next may
  [[nodiscard]] Clock::time_point take(std::uint64_t bytes, Clock::time_point now);

 private:
  const std::uint64_t rate_;
  Clock::time_point free_at_{};
};

}  // namespace rdmacomm::copying
