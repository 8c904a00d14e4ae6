#include "support/cpu.h"

#include <sched.h>

#include <fstream>

#include "base/system_call.h"

namespace rdmacomm::programs {

std::vector<int> allowed_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cpus;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

std::pair<int, int> two_cpus() {
  const std::vector<int> cpus = allowed_cpus();
  return {!cpus.empty() ? cpus[0] : -1, cpus.size() > 1 ? cpus[1] : -1};
}

Status pin_this_thread(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (cpu >= 0 && cpu < CPU_SETSIZE) CPU_SET(cpu, &set);
  if (sched_setaffinity(0, sizeof(set), &set) != 0) {
    return make_error(last_system_error(), "cannot bind a thread to CPU " + std::to_string(cpu));
  }
  return {};
}

std::string machine_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

}  // namespace rdmacomm::programs
