// tool_access.h - marks registrations that a tool makes in a program.
// Layer: verbs.
#pragma once

#include <infiniband/verbs.h>

namespace rdmacomm::verbs {

/// An access flag of ibv_reg_mr for the memory of a tool, such as the checker of softdev-run. soft0 does not count such
/// a registration: it is none of the program, so limits of locked memory and plans of faults are not about it. The flag
/// is in the optional range, which other devices ignore.
inline constexpr int kAccessOfTool = 1 << 29;
static_assert((kAccessOfTool & ~static_cast<int>(IBV_ACCESS_OPTIONAL_RANGE)) == 0);

}  // namespace rdmacomm::verbs
