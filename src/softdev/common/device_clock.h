// device_clock.h - the clock that completions are stamped by.
#pragma once

#include <cstdint>
#include <ctime>

namespace rdmacomm::softdev {

inline constexpr std::uint64_t kClockKilohertz = 1'000'000;  ///< one tick is a nanosecond
inline constexpr std::uint64_t kClockMask = UINT64_MAX;      ///< the bits that count

/// Nanoseconds of a clock of clock_gettime(2).
[[nodiscard]] inline std::uint64_t nanoseconds_of(clockid_t clock) noexcept {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
}
/// The device's clock, in ticks. It is one for all processes of the host.
[[nodiscard]] inline std::uint64_t device_ticks() noexcept {
  return nanoseconds_of(CLOCK_MONOTONIC);
}
/// Nanoseconds since 1970.
[[nodiscard]] inline std::uint64_t wall_nanoseconds() noexcept {
  return nanoseconds_of(CLOCK_REALTIME);
}

}  // namespace rdmacomm::softdev
