// process_figures.h - the resources that this process uses.
#pragma once

#include <cstdint>

namespace rdmacomm::mesh {

/// The values of /proc/self/status; zero if it does not exist. A value.
struct ProcessFigures {
  std::uint32_t pid = 0;
  std::uint32_t threads = 0;
  std::uint64_t memory_bytes = 0;  ///< resident, including memory shared with other processes
  std::uint64_t peak_memory_bytes = 0;
};
[[nodiscard]] ProcessFigures process_figures();
/// Processor time of all threads so far, user and system.
[[nodiscard]] std::uint64_t cpu_time_us();

}  // namespace rdmacomm::mesh
