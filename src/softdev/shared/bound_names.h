// bound_names.h - what processes of one user tell each other by the names of their UNIX sockets.
#pragma once

#include <string>
#include <vector>

namespace rdmacomm::softdev {

/// What follows `prefix` in the abstract names of this network namespace that begin with it (without their 0 byte), of sockets that are
/// this user's: any user may take any name. Where the kernel does not tell whose a socket is, all users' count.
/// Cost: reads the list of all UNIX sockets, some tens of microseconds.
[[nodiscard]] std::vector<std::string> bound_names(const std::string& prefix);

}  // namespace rdmacomm::softdev
