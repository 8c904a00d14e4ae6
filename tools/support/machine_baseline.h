// machine_baseline.h - what this machine's memory can do, measured beside the benchmark that is compared with it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "rdmacomm/result.h"
#include "support/tick_clock.h"

namespace rdmacomm::programs {

/// GB/s (10^9 bytes) of one memcpy after another.
struct CopyFigures {
  double alone = 0;          ///< nobody else touches the destination
  double read_by_other = 0;  ///< the other core reads each copy before the next one is made; 0: no second CPU
};

/// Measures two things that any communication through shared memory is bounded by: how long a cache line takes from
/// one core to the other, and how fast a core copies. Machines drift within seconds, so this is called again and
/// again between the rounds of a benchmark, for some milliseconds each time; the figures are medians over all calls.
/// A resource; keeps a thread on the other CPU, which sleeps between calls.
/// Threads: one at a time, which should stay on the first CPU.
class MachineBaseline {
 public:
  /// other_cpu  where the second thread runs; -1: there is no second CPU, cache lines are not measured
  /// Returns    the system's error where a thread cannot be kept on that CPU, or memory is short
  [[nodiscard]] static Result<std::unique_ptr<MachineBaseline>> create(const TickClock& clock, int other_cpu);
  MachineBaseline(const MachineBaseline&) = delete;
  MachineBaseline& operator=(const MachineBaseline&) = delete;
  ~MachineBaseline();

  [[nodiscard]] bool has_second_cpu() const noexcept { return other_cpu_ >= 0; }
  [[nodiscard]] int other_cpu() const noexcept { return other_cpu_; }

  /// One more measurement of the cache line's way: about 2 ms. Returns it in ns; 0 without a second CPU.
  double measure_cache_line();
  /// One more measurement of copying `bytes`: about 2 ms alone, and the same with the other core.
  /// Returns  std::errc::not_enough_memory
  [[nodiscard]] Result<CopyFigures> measure_copy(std::uint64_t bytes);

  /// Median over all measurements so far, in ns; 0 where there is none.
  [[nodiscard]] double cache_line_ns() const;
  [[nodiscard]] CopyFigures copy(std::uint64_t bytes) const;

 private:
  class Helper;
  struct CopySeries {
    std::vector<double> alone;
    std::vector<double> read_by_other;
  };

  MachineBaseline(const TickClock& clock, int other_cpu);
  double copy_alone_ns(const std::byte* from, std::byte* to, std::uint64_t bytes) const;
  double copy_read_ns(const std::byte* from, std::byte* to, std::uint64_t bytes);

  const TickClock& clock_;
  const int other_cpu_;
  std::unique_ptr<Helper> helper_;
  std::vector<double> cache_line_ns_;
  std::map<std::uint64_t, CopySeries> copies_;
};

}  // namespace rdmacomm::programs
