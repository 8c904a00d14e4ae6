#include "softdev/host/multicast.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <random>
#include <set>

#include "softdev/common/device_limits.h"
#include "softdev/host/gid_table.h"
#include "softdev/shared/bound_names.h"
#include "softdev/shared/unix_packet.h"

namespace rdmacomm::softdev {
namespace {

/// Each user has separate groups, because members are reached through memory that other users cannot share.
std::string group_names() {
  return "rdmacomm/soft0/group/" + std::to_string(geteuid()) + "/";
}

/// The common part of the names of all members of a group. The queue pair's number and a random number follow it, so no
/// other socket has the name already.
std::string name_prefix(const ibv_gid& group) {
  return group_names() + digits_of(group) + "/";
}

/// True if the group has a member or a further group is allowed.
bool has_room(const ibv_gid& group) {
  const std::string names = group_names();
  const std::string wanted = name_prefix(group).substr(names.size());
  std::set<std::string> groups;
  for (const std::string& name : bound_names(names)) groups.insert(name.substr(0, wanted.size()));
  return groups.contains(wanted) || groups.size() < kMaxGroups;
}

}  // namespace

int Memberships::join(std::uint32_t qpn, const ibv_gid& group, bool& is_new) {
  if (!is_multicast(group)) return EINVAL;
  const std::string prefix = name_prefix(group);
  const std::scoped_lock lock(mutex_);
  is_new = !by_group_.contains(prefix);
  if (!is_new) return 0;  // like the kernel
  if (!has_room(group)) return ENOMEM;
  UniqueFd socket =
      bind_to(std::string(1, '\0') + prefix + std::to_string(qpn) + "/" + std::to_string(std::random_device{}()));
  if (!socket) return errno;
  by_group_.emplace(prefix, std::move(socket));
  return 0;
}

int Memberships::leave(const ibv_gid& group) {
  const std::scoped_lock lock(mutex_);
  return by_group_.erase(name_prefix(group)) == 0 ? EINVAL : 0;
}

bool Memberships::empty() {
  const std::scoped_lock lock(mutex_);
  return by_group_.empty();
}

std::vector<std::uint32_t> members_of(const ibv_gid& group) {
  std::vector<std::uint32_t> members;
  for (const std::string& digits : bound_names(name_prefix(group))) {
    std::uint32_t qpn = 0;
    if (std::from_chars(digits.data(), digits.data() + digits.size(), qpn).ec == std::errc{}) members.push_back(qpn);
  }
  return members;
}

}  // namespace rdmacomm::softdev
