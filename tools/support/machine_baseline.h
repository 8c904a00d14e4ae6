// machine_baseline.h - measures the speed of the local memory, for comparison with a benchmark.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "rdmacomm/result.h"
#include "support/tick_clock.h"

namespace rdmacomm::programs {

/// GB/s (10^9 bytes) of repeated memcpy calls.
struct CopyFigures {
  double alone = 0;          ///< no other core touches the destination
  double read_by_other = 0;  ///< the other core reads each copy before the next copy; 0: no second CPU
};

/// Measures two limits of any communication through shared memory: the time that a cache line takes from one core to
/// another, and the copy rate of a core. The speed of machines changes within seconds. Therefore this is called
/// repeatedly between the rounds of a benchmark, for some milliseconds each time, and the results are medians over all
/// calls. A resource. It keeps a thread on the other CPU, which sleeps between calls.
/// Threads: one at a time, which should stay on the first CPU.
class MachineBaseline {
 public:
  /// other_cpu  the CPU of the second thread; -1: no second CPU, so cache lines are not measured
  /// Returns    the system's error if a thread cannot be bound to that CPU, or if memory is short
  [[nodiscard]] static Result<std::unique_ptr<MachineBaseline>> create(const TickClock& clock, int other_cpu);
  MachineBaseline(const MachineBaseline&) = delete;
  MachineBaseline& operator=(const MachineBaseline&) = delete;
  ~MachineBaseline();

  [[nodiscard]] bool has_second_cpu() const noexcept { return other_cpu_ >= 0; }
  [[nodiscard]] int other_cpu() const noexcept { return other_cpu_; }

  /// Measures the transfer of a cache line once more: about 2 ms. Returns it in ns; 0 without a second CPU.
  double measure_cache_line();
  /// Measures the copy of `bytes` once more: about 2 ms alone, and as long with the other core.
  /// Returns  std::errc::not_enough_memory
  [[nodiscard]] Result<CopyFigures> measure_copy(std::uint64_t bytes);

  /// Median over all measurements so far, in ns; 0 without any.
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
