// process_figures.h - what this process takes.
#pragma once

#include <cstdint>

namespace rdmacomm::mesh {

/// As /proc/self/status has it; zero where there is none. A value.
struct ProcessFigures {
  std::uint32_t pid = 0;
  std::uint32_t threads = 0;
  std::uint64_t memory_bytes = 0;  ///< resident, with what it shares with others
  std::uint64_t peak_memory_bytes = 0;
};
[[nodiscard]] ProcessFigures process_figures();
/// Processor time of all threads so far, in user and in system.
[[nodiscard]] std::uint64_t cpu_time_us();

}  // namespace rdmacomm::mesh
