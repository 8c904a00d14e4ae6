#include "mesh_comm_service/process_figures.h"

#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>

namespace rdmacomm::mesh {

namespace {

/// Calls `take(name, value)` for each line "Name:  value ...".
template <typename Take>
void read_values(const char* path, Take&& take) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    std::uint64_t value = 0;
    if (words >> name >> value) take(name, value);
  }
}

}  // namespace

ProcessFigures process_figures() {
  ProcessFigures figures;
  figures.pid = static_cast<std::uint32_t>(getpid());
  read_values("/proc/self/status", [&](const std::string& name, std::uint64_t value) {
    if (name == "VmRSS:") figures.memory_bytes = value * 1024;
    if (name == "VmHWM:") figures.peak_memory_bytes = value * 1024;
    if (name == "Threads:") figures.threads = static_cast<std::uint32_t>(value);
  });
  return figures;
}

std::uint64_t cpu_time_us() {
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) != 0) return 0;
  const auto us = [](const timeval& time) {
    return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000 + static_cast<std::uint64_t>(time.tv_usec);
  };
  return us(usage.ru_utime) + us(usage.ru_stime);
}

}  // namespace rdmacomm::mesh
