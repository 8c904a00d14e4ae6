// Prints the frequency of the local time stamp counter in kHz. The guest of an emulator has the host's counter, and
// nothing to measure its frequency with.
#include <x86intrin.h>

#include <chrono>
#include <cstdio>

int main() {
  using Clock = std::chrono::steady_clock;
  const auto began = Clock::now();
  const unsigned long long first = __rdtsc();
  while (Clock::now() - began < std::chrono::milliseconds(100)) {
  }
  const unsigned long long ticks = __rdtsc() - first;
  const std::chrono::duration<double, std::milli> took = Clock::now() - began;
  std::printf("%.0f\n", static_cast<double>(ticks) / took.count());
}
