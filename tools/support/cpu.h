// cpu.h - which CPUs this process may use, and keeping a thread on one of them.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "rdmacomm/result.h"

namespace rdmacomm::programs {

/// The CPUs that this process may run on, ascending.
[[nodiscard]] std::vector<int> allowed_cpus();
/// Two CPUs for the two ends of a connection on one machine: the first two allowed ones; -1 for what there is not.
[[nodiscard]] std::pair<int, int> two_cpus();

/// Keeps the calling thread on `cpu` from now on. Threads that it starts later inherit that.
[[nodiscard]] Status pin_this_thread(int cpu);

/// The kernel's identity of this boot of this machine: equal on both sides of a connection means one machine.
/// Empty where the system has none.
[[nodiscard]] std::string machine_id();

}  // namespace rdmacomm::programs
