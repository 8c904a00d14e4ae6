// rnr_timer.h - how long and how often a sender waits for a receiver that is not ready.
#pragma once

#include <chrono>
#include <cstdint>

namespace rdmacomm::softdev {

/// The time that a sender waits after "receiver not ready", by min_rnr_timer code. Source: ibv_modify_qp(3).
[[nodiscard]] inline std::chrono::microseconds rnr_delay(std::uint32_t code) noexcept {
  static constexpr std::uint32_t kHundredthsOfMs[32] = {
      65536, 1,   2,   3,   4,    6,    8,    12,   16,   24,   32,   48,    64,    96,    128,   192,
      256,   384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};
  return std::chrono::microseconds(kHundredthsOfMs[code % 32] * 10);
}

/// The value of rnr_retry without a limit. Source: ibv_modify_qp(3).
inline constexpr int kInfiniteRnrRetry = 7;

}  // namespace rdmacomm::softdev
