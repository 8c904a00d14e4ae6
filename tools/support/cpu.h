// cpu.h - lists the CPUs that this process may use, and binds a thread to one of them.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "rdmacomm/result.h"

namespace rdmacomm::programs {

/// The CPUs that this process may run on, ascending.
[[nodiscard]] std::vector<int> allowed_cpus();
/// Two CPUs for the two peers of a connection on one machine: the first two allowed ones; -1 for each that is missing.
[[nodiscard]] std::pair<int, int> two_cpus();

/// Binds the calling thread to `cpu`. Threads that it starts later inherit this.
[[nodiscard]] Status pin_this_thread(int cpu);

/// The kernel's identity of this boot of this machine: two processes with the same value run on one machine. Empty if
/// the system has none.
[[nodiscard]] std::string machine_id();

}  // namespace rdmacomm::programs
