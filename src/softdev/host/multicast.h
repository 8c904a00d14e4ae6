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

/// The queue pair number that means "all members of the group". Source: InfiniBand specification, volume 1, section 10.5.
inline constexpr std::uint32_t kMulticastQpn = 0xffffff;

/// The groups that one queue pair is in. Membership is a bound socket with an abstract name, as block_socket_name() is
/// one: the system's list of them is the list of members, and who dies is in no group any more.
/// Threads: any.
class Memberships {
 public:
  /// 0, or an errno value; EINVAL: no group's GID; ENOMEM: the host has as many groups as may be.
  [[nodiscard]] int join(std::uint32_t qpn, const ibv_gid& group);
  /// EINVAL: not a member.
  [[nodiscard]] int leave(const ibv_gid& group);
  [[nodiscard]] bool empty();

 private:
  std::mutex mutex_;
  std::map<std::string, UniqueFd> by_group_;
};

/// The queue pairs that are in `group`, of all processes of this user in the network namespace.
/// Cost: reads the list of all UNIX sockets, some tens of microseconds.
[[nodiscard]] std::vector<std::uint32_t> members_of(const ibv_gid& group);

}  // namespace rdmacomm::softdev
