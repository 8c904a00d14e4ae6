#include "rdma_copy/rate_limit.h"

#include <algorithm>

namespace rdmacomm::copying {

std::uint64_t RateLimit::most() const noexcept {
  return bounded() ? std::max<std::uint64_t>(rate_ / 10, 4096) : UINT64_MAX;
}

RateLimit::Clock::time_point RateLimit::take(std::uint64_t bytes, Clock::time_point now) {
  if (!bounded()) return now;
  const std::chrono::duration<double> takes(static_cast<double>(bytes) / static_cast<double>(rate_));
  free_at_ =
      std::max(free_at_, now - std::chrono::milliseconds(100)) + std::chrono::duration_cast<Clock::duration>(takes);
  return free_at_;
}

}  // namespace rdmacomm::copying
