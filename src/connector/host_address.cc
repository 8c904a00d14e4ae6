#include "connector/host_address.h"

#include "connector/host_addresses.h"
#include "connector/lookup.h"
#include "verbs/gid.h"

namespace rdmacomm {

std::vector<HostAddress> as_host_addresses(const std::vector<SocketAddress>& resolved) {
  std::vector<HostAddress> found;
  for (const SocketAddress& each : resolved) {
    const auto& ipv6 = reinterpret_cast<const sockaddr_in6&>(each.storage);
    const std::uint32_t scope = each.family() == AF_INET6 ? ipv6.sin6_scope_id : 0;
    found.push_back({.gid = each.as_gid(), .scope = scope, .text = each.host()});
  }
  return found;
}

bool HostAddress::is_any() const noexcept {
  const Gid any_ipv4{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff}};
  return verbs::is_empty(gid) || (gid == any_ipv4);
}

Result<std::vector<HostAddress>> find_addresses(const HostPort& where, Deadline deadline, int cancel_fd) {
  const auto resolved = resolve_within(where, deadline, cancel_fd);
  if (!resolved) return resolved.error();
  return as_host_addresses(*resolved);
}

}  // namespace rdmacomm
