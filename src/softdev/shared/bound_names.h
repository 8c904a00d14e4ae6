// bound_names.h - lists the abstract UNIX socket names that processes of this user have bound.
#pragma once

#include <string>
#include <vector>

namespace rdmacomm::softdev {

/// Lists the abstract socket names that begin with `prefix` (without their leading 0 byte), in this network namespace.
/// Returns the rest of each name, after `prefix`. Only sockets of this user count, because any user may bind any name.
/// If the kernel does not tell the owners of sockets, those of all users count.
/// Cost: reads the list of all UNIX sockets, some tens of microseconds.
[[nodiscard]] std::vector<std::string> bound_names(const std::string& prefix);

}  // namespace rdmacomm::softdev
