// device_clock.h - the clock for the timestamps of completions.
#pragma once

#include <cstdint>
#include <ctime>

namespace rdmacomm::softdev {

inline constexpr std::uint64_t kClockKilohertz = 1'000'000;  ///< one tick is a nanosecond
inline constexpr std::uint64_t kClockMask = UINT64_MAX;      ///< the valid bits of a timestamp

/// Reads a clock of clock_gettime(2), in nanoseconds.
[[nodiscard]] inline std::uint64_t nanoseconds_of(clockid_t clock) noexcept {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
}
/// The device's clock, in ticks. All processes of the host share it.
[[nodiscard]] inline std::uint64_t device_ticks() noexcept {
  return nanoseconds_of(CLOCK_MONOTONIC);
}
/// Nanoseconds since 1970.
[[nodiscard]] inline std::uint64_t wall_nanoseconds() noexcept {
  return nanoseconds_of(CLOCK_REALTIME);
}

}  // namespace rdmacomm::softdev
