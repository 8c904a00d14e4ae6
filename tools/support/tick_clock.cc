#include "support/tick_clock.h"

#include <fstream>
#include <string>

namespace rdmacomm::programs {
namespace {

/// Whether the processor reports a counter with a constant rate, at any frequency and power state.
bool has_constant_counter() {
#if defined(__x86_64__)
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("flags")) continue;
    return line.find(" constant_tsc") != std::string::npos && line.find(" nonstop_tsc") != std::string::npos;
  }
#endif
  return false;
}

}  // namespace

TickClock::TickClock() {
  using Steady = std::chrono::steady_clock;
  uses_counter_ = has_constant_counter();
  constexpr std::chrono::milliseconds kCalibration{20};
  const auto began = Steady::now();
  const std::uint64_t first = now();
  auto ended = began;
  while (ended - began < kCalibration) ended = Steady::now();
  const std::uint64_t last = now();
  if (uses_counter_ && last > first) {
    ns_per_tick_ =
        static_cast<double>(std::chrono::nanoseconds(ended - began).count()) / static_cast<double>(last - first);
  }

  constexpr int kReads = 1000;
  const std::uint64_t reads_began = now();
  std::uint64_t latest = 0;
  for (int i = 0; i < kReads; ++i) latest = now();
  cost_ns_ = ns(latest - reads_began) / kReads;
}

}  // namespace rdmacomm::programs
