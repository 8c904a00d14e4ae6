// bound_names.h - lists the abstract UNIX socket names that processes have bound.
#pragma once

#include <infiniband/verbs.h>

#include <string>
#include <vector>

namespace rdmacomm::softdev {

/// A GID as a part of a name: 32 digits.
[[nodiscard]] std::string digits_of(const ibv_gid& gid);

/// Any user may bind any name, so most callers count this user's only.
enum class NamesOf : bool { kThisUser, kAllUsers };

/// Lists the abstract socket names that begin with `prefix` (without their leading 0 byte), in this network namespace.
/// Returns the rest of each name, after `prefix`. If the kernel does not tell the owners of sockets, those of all users
/// count.
/// Cost: reads the list of all UNIX sockets, some tens of microseconds.
[[nodiscard]] std::vector<std::string> bound_names(const std::string& prefix, NamesOf owners = NamesOf::kThisUser);

}  // namespace rdmacomm::softdev
