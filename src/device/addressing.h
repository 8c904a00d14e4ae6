// addressing.h - a pure function that chooses the device, port and GIDs for a peer, and explains its choice.
// Layer: device. Uses: base.   The rules, with examples: docs/addressing.md
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "rdmacomm/device.h"
#include "rdmacomm/result.h"

namespace rdmacomm {

/// A network interface of the local network namespace. A value.
struct NetworkInterface {
  unsigned index = 0;
  std::string name{};
  std::vector<std::uint8_t> hardware_address{};  ///< 6 bytes on Ethernet, 20 on IP over InfiniBand
  std::vector<Gid> addresses{};                  ///< IPv4 in its mapped form

  [[nodiscard]] bool owns(const Gid& address) const noexcept;
};

/// The kernel's route to a peer. A value.
struct PeerRoute {
  Gid source{};             ///< the local address on it; IPv4 in its mapped form
  std::string peer{};       ///< the peer's address, for messages
  bool of_clients = false;  ///< `peer` is a local address to listen at: the peers are its clients
  unsigned interface = 0;   ///< index of the outgoing interface; 0: the interface that owns `source`

  /// "10.0.0.2", or "clients of 10.0.0.1".
  [[nodiscard]] std::string text() const;
};

/// The facts about a port that the choice uses. A value.
struct PortFacts {
  std::string device{};
  std::uint8_t number = 1;
  Transport transport = Transport::kUnknown;
  ibv_port_state state = IBV_PORT_NOP;
  std::vector<GidEntry> gids{};  ///< without the empty ones
};

/// The facts about a device that the choice uses. A value.
struct DeviceFacts {
  std::string name{};
  std::vector<PortFacts> ports{};
  std::string unusable{};  ///< why it could not be examined; empty: it could
};

/// How queue pairs will be connected. Not every device supports each way.
enum class ConnectBy : std::uint8_t {
  kAddresses,  ///< by exchanged addresses: every device except iWARP
  kRdmaCm,     ///< by rdma_cm: no software device, and only devices on the route can be used
  kEither,     ///< in the way that the device needs
};

/// All inputs of the choice. A value.
struct AddressingInput {
  std::vector<DeviceFacts> devices{};          ///< in order of preference among equal devices
  std::vector<NetworkInterface> interfaces{};  ///< empty: not known, so any GID may be usable
  std::optional<PeerRoute> route{};            ///< empty: no peer is known yet
  DeviceOptions options{};                     ///< the caller's choices by name or number; valid
  ConnectBy connect_by = ConnectBy::kAddresses;

  /// The interface by which the route leaves; nullptr: not known.
  [[nodiscard]] const NetworkInterface* route_interface() const noexcept;
};

/// The GIDs of one port that can be used towards a peer. A value.
struct GidChoice {
  std::vector<GidEntry> gids{};  ///< best first, then others that may suit the peer better; at least one
  std::string explanation{};     ///< "GID 1 ::ffff:10.2.0.1 (RoCE v2): the route to 10.2.0.2 leaves by va, ..."
};
/// The largest number of GIDs of a choice: the best of each kind (RoCE v1 and v2, IPv4 and IPv6, three reaches),
/// because a peer may lack GIDs of one kind and have GIDs of another.
inline constexpr std::size_t kMaxGidChoices = 12;

/// How well a port, or a GID of it, fits the route. Best first.
enum class RouteFit : std::uint8_t {
  kSource,     ///< the GID is the route's source address
  kInterface,  ///< it belongs to the interface by which the route leaves
  kElsewhere,  ///< neither, or no route is known
};
/// The best fit among the port's GIDs that the options allow and that belong to this namespace.
[[nodiscard]] RouteFit route_fit(const AddressingInput& input, const PortFacts& port);

/// Ranks the GIDs of a port by these criteria, the most important first: it is the route's source address; it belongs
/// to the interface by which the route leaves; it is routable, then link-local, then loopback; RoCE v2 before v1; IPv4
/// before IPv6 (both peers need the same); a lower index. A GID whose interface is not in this namespace is not used.
/// An index in input.options overrides all criteria.
///
/// Returns  kNoUsableGid: no GID of the wanted type, none in this namespace, or the entry with the given index is
///          empty. The context lists the table
[[nodiscard]] Result<GidChoice> choose_gids(const AddressingInput& input, const PortFacts& port);

/// A device, one of its ports, and its GIDs. A value.
struct AddressChoice {
  std::size_t device = 0;  ///< in AddressingInput::devices
  std::uint8_t port = 1;
  std::string explanation{};  ///< one line: "chose rxe_a port 1 GID 1 ..., not mlx5_1 port 1: it is DOWN"
};

/// Chooses a device and a port, in this order: a port that has a GID, or an IP over InfiniBand interface, on the route;
/// other hardware with a routable GID, or on InfiniBand; hardware with link-local GIDs only; a software device; a
/// device without a usable GID. Among equal devices it takes the first. With options.name it considers only that
/// device.
///
/// Returns  kNoDevice: no device at all, or none of that name (the context lists all devices);
///          kNoActivePort: no port is ACTIVE, or no active port can be used (the context gives the reason for each);
///          kInvalidArgument: a port that the device does not have
[[nodiscard]] Result<AddressChoice> choose_address(const AddressingInput& input);

}  // namespace rdmacomm
