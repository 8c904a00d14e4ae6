// multicast.h - the multicast groups of one host.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "base/unique_fd.h"

namespace rdmacomm::softdev {

/// The queue pair number that means "all members of the group".
/// Source: InfiniBand specification, volume 1, section 10.5.
inline constexpr std::uint32_t kMulticastQpn = 0xffffff;

/// The multicast groups of one queue pair. For each group it binds a socket to an abstract name, like
/// block_socket_name(). The system's list of sockets is the list of members. A process that dies leaves all its groups.
/// Threads: any.
class Memberships {
 public:
  /// is_new   set to false if it was a member already, which is no error
  /// Returns  0, or an errno value. EINVAL: not a multicast GID. ENOMEM: the host has the maximum number of groups.
  [[nodiscard]] int join(std::uint32_t qpn, const ibv_gid& group, bool& is_new);
  /// Returns  0; EINVAL: not a member.
  [[nodiscard]] int leave(const ibv_gid& group);
  [[nodiscard]] bool empty();

 private:
  std::mutex mutex_;
  std::map<std::string, UniqueFd> by_group_;
};

/// The queue pairs in `group`, of all processes of this user in the network namespace.
/// Cost: reads the list of all UNIX sockets, some tens of microseconds.
[[nodiscard]] std::vector<std::uint32_t> members_of(const ibv_gid& group);

}  // namespace rdmacomm::softdev
