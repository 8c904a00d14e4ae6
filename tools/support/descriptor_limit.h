// descriptor_limit.h - how many file descriptors a process may have open.
#pragma once

#include <cstdint>

#include "rdmacomm/result.h"

namespace rdmacomm::programs {

/// Lets this process, and those that it starts from now on, have `count` of them: raises the soft limit (`ulimit -n`)
/// where that is lower.
/// Returns  std::errc::too_many_files_open: the hard limit is lower; the context has both numbers and what to do
[[nodiscard]] Status allow_descriptors(std::uint64_t count);

}  // namespace rdmacomm::programs
