// tick_clock.h - the cheapest clock, for timing single operations.
#pragma once

#include <chrono>
#include <cstdint>

namespace rdmacomm::programs {

/// Counts in ticks: the processor's time stamp counter if it has a constant rate in all power states, else nanoseconds
/// of the steady clock. Reading the counter costs about 10 ns. Reading the steady clock costs twice that, which is as
/// long as a small operation on the software device.
/// A value. Create it once and pass it on: the constructor measures the length of a tick for some milliseconds.
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
  /// The cost of one call of now(), in ns: included in every time of a single operation.
  [[nodiscard]] double cost_ns() const noexcept {
    return cost_ns_;
  }

 private:
  bool uses_counter_ = false;
  double ns_per_tick_ = 1;
  double cost_ns_ = 0;
};

}  // namespace rdmacomm::programs
