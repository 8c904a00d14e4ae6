// host_network.h - what the operating system knows of interfaces and routes. Needs no privilege and no sysfs.
// Layer: device.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "device/addressing.h"

namespace rdmacomm {

/// The questions to the operating system. A value; tests answer them themselves. Threads: any.
struct HostNetwork {
  /// The interfaces of this network name space that are up; empty where the system does not say.
  std::vector<NetworkInterface> (*interfaces)();
  /// The source address by which packets to `peer` leave, or empty: there is no route. Sends nothing.
  /// scope  index of the interface that a link-local IPv6 peer is behind; 0: not given
  std::optional<Gid> (*source_towards)(const Gid& peer, std::uint32_t scope);

  /// The answers of this system.
  [[nodiscard]] static const HostNetwork& system() noexcept;
};

/// The route to a peer; empty: there is none. `name` is what messages call the peer.
[[nodiscard]] std::optional<PeerRoute> find_route(const HostNetwork& network, const Gid& peer, std::uint32_t scope,
                                                  const std::string& name);

}  // namespace rdmacomm
