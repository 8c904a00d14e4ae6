// host_network.h - interfaces and routes of the operating system. Needs no privilege and no sysfs.
// Layer: device.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "device/addressing.h"

namespace rdmacomm {

/// Functions that ask the operating system. A value; tests replace the functions. Threads: any.
struct HostNetwork {
  /// The interfaces of this network namespace that are up; empty if the system does not report them.
  std::vector<NetworkInterface> (*interfaces)();
  /// The source address of packets to `peer`; empty: no route. Sends nothing.
  /// scope  index of the interface that a link-local IPv6 peer is behind; 0: not given
  std::optional<Gid> (*source_towards)(const Gid& peer, std::uint32_t scope);

  /// The functions that ask this system.
  [[nodiscard]] static const HostNetwork& system() noexcept;
};

/// The route to a peer; empty: no route. `name` is the peer's name in messages.
[[nodiscard]] std::optional<PeerRoute> find_route(const HostNetwork& network, const Gid& peer, std::uint32_t scope,
                                                  const std::string& name);

}  // namespace rdmacomm
