// descriptor_limit.h - the limit of open file descriptors of a process.
#pragma once

#include <cstdint>

#include "rdmacomm/result.h"

namespace rdmacomm::programs {

/// Raises the soft limit (`ulimit -n`) of this process if it is lower than `count`: to twice that number if the hard limit
/// permits it, because connections that are being made need more descriptors for a short time. Processes that it starts
/// later inherit the limit.
/// Returns  std::errc::too_many_files_open: the hard limit is lower; the context has both numbers and the remedy
[[nodiscard]] Status allow_descriptors(std::uint64_t count);

}  // namespace rdmacomm::programs
