// target_route.h - by which way a target is reached.
#pragma once

#include <infiniband/verbs.h>

#include <string_view>
#include <vector>

#include "softdev/host/route.h"
#include "softdev/host/soft_device.h"

namespace rdmacomm::softdev {

/// Which targets are reached by TCP, see kWireVariable.
enum class TcpUse : std::uint8_t { kOtherHosts, kAlways, kNever };
/// false: `text` says none of them.
[[nodiscard]] bool read_tcp_use(std::string_view text, TcpUse& use) noexcept;

/// The way to a target, or to a multicast group, at `address`. 0, or an errno value: EINVAL, no address of this kind of
/// port; EHOSTUNREACH: no way leads there. `table`: the device's GIDs.
[[nodiscard]] int find_route(const DeviceIdentity& identity, const std::vector<ibv_gid_entry>& table,
                             const ibv_ah_attr& address, TcpUse use, Route& route);

/// From this host to itself, by TCP.
[[nodiscard]] Route loopback_route();

}  // namespace rdmacomm::softdev
