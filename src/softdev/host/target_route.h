// target_route.h - finds the route to a target.
#pragma once

#include <infiniband/verbs.h>

#include <string_view>
#include <vector>

#include "softdev/host/route.h"
#include "softdev/host/soft_device.h"
#include "softdev/shared/layout.h"

namespace rdmacomm::softdev {

/// The targets that are reached over TCP, see kWireVariable.
enum class TcpUse : std::uint8_t { kOtherHosts, kAlways, kNever };
/// Returns  false: `text` names no such value.
[[nodiscard]] bool read_tcp_use(std::string_view text, TcpUse& use) noexcept;

/// Finds the route to a target, or to a multicast group, at `address`.
/// table    the device's GIDs
/// host     the GIDs of this host, from host_gids()
/// Returns  0, or an errno value. EINVAL: the address does not fit this kind of port. EHOSTUNREACH: no route.
[[nodiscard]] int find_route(const DeviceIdentity& identity, const std::vector<ibv_gid_entry>& table,
                             const std::vector<ibv_gid_entry>& host, const ibv_ah_attr& address, TcpUse use,
                             Route& route);

/// The terms for requests that a queue pair at `port` sends to `address`, without a PSN. find_route() has accepted the
/// address.
[[nodiscard]] LinkTerms sending_terms(const DeviceIdentity& identity, const std::vector<ibv_gid_entry>& table,
                                      unsigned port, const ibv_ah_attr& address);

/// The route over TCP from this host to itself.
[[nodiscard]] Route loopback_route();

}  // namespace rdmacomm::softdev
