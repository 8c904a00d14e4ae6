// statistics.h - how this process has reached memory, for `softdev-run --stats`.
#pragma once

#include <string>

#include "softdev/memory/application_memory.h"

namespace rdmacomm::softdev::preload {

/// The lines for registrations, each with the reason if peers need system calls. Empty: none.
[[nodiscard]] std::string describe_registrations(const ReachCounts& counts);
/// Prints the statistics of this process to standard error when it ends, if RDMACOMM_SOFT0_STATS is set.
void print_statistics_at_exit();

}  // namespace rdmacomm::softdev::preload
