// tick_clock.h - the cheapest clock there is, for timing single operations.
#pragma once

#include <chrono>
#include <cstdint>

namespace rdmacomm::programs {

/// Counts in ticks: the processor's time stamp counter where it runs at a constant rate in all power states, else
/// the steady clock's nanoseconds. Reading it costs some 10 ns; reading the steady clock costs twice that, which
/// is as much as a small operation on the software device takes.
/// A value: made once, which measures the length of a tick for some milliseconds, and passed down.
class TickClock {
 public:
  TickClock();

  [[nodiscard]] std::uint64_t now() const noexcept {
#if defined(__x86_64__)
    if (uses_counter_) return __builtin_ia32_rdtsc();
#endif
    return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  }
  [[nodiscard]] double ns(std::uint64_t ticks) const noexcept {
    return static_cast<double>(ticks) * ns_per_tick_;
  }
  [[nodiscard]] double ns_per_tick() const noexcept {
    return ns_per_tick_;
  }
  [[nodiscard]] std::uint64_t ticks(std::chrono::nanoseconds time) const noexcept {
    return static_cast<std::uint64_t>(static_cast<double>(time.count()) / ns_per_tick_);
  }
  /// What one call of now() costs, in ns: part of every single-operation figure.
  [[nodiscard]] double cost_ns() const noexcept {
    return cost_ns_;
  }

 private:
  bool uses_counter_ = false;
  double ns_per_tick_ = 1;
  double cost_ns_ = 0;
};

}  // namespace rdmacomm::programs
