// addressing.h - which device, port and GID lead to a peer: a function from what is known to an explained choice.
// Layer: device. Uses: base.   How it decides, for people: docs/addressing.md
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

/// A network interface of this process's name space. A value.
struct NetworkInterface {
  unsigned index = 0;
  std::string name{};
  std::vector<std::uint8_t> hardware_address{};  ///< 6 bytes on Ethernet, 20 on IP over InfiniBand
  std::vector<Gid> addresses{};                  ///< IPv4 in its mapped form

  [[nodiscard]] bool owns(const Gid& address) const noexcept;
};

/// The way to a peer as the kernel's routing has it. A value.
struct PeerRoute {
  Gid source{};             ///< this side's address on it; IPv4 in its mapped form
  std::string peer{};       ///< the peer's address, for messages
  bool of_clients = false;  ///< `peer` is an address of this side's, at which it listens: the peers are its clients
  unsigned interface = 0;   ///< where it leaves, if that is known better than by the owner of `source`; 0: not

  /// "10.0.0.2", or "clients of 10.0.0.1".
  [[nodiscard]] std::string text() const;
};

/// What the choice has to know of a port. A value.
struct PortFacts {
  std::string device{};
  std::uint8_t number = 1;
  Transport transport = Transport::kUnknown;
  ibv_port_state state = IBV_PORT_NOP;
  std::vector<GidEntry> gids{};  ///< without the empty ones
};

/// What the choice has to know of a device. A value.
struct DeviceFacts {
  std::string name{};
  std::vector<PortFacts> ports{};
  std::string unusable{};  ///< why it could not be looked at; empty: it could
};

/// How queue pairs will be connected, which not every device is fit for.
enum class ConnectBy : std::uint8_t {
  kAddresses,  ///< by exchanged addresses: every device but iWARP ones
  kRdmaCm,     ///< by rdma_cm: no software device, and only devices on the route are of use
  kEither,     ///< as the device needs it
};

/// Everything that the choice depends on. A value.
struct AddressingInput {
  std::vector<DeviceFacts> devices{};          ///< in the order of preference among equals
  std::vector<NetworkInterface> interfaces{};  ///< empty: not known, so that any GID may be of use
  std::optional<PeerRoute> route{};            ///< empty: no peer is known yet
  DeviceOptions options{};                     ///< what was asked for by name or number; valid
  ConnectBy connect_by = ConnectBy::kAddresses;

  /// The interface by which the route leaves; nullptr: not known.
  [[nodiscard]] const NetworkInterface* route_interface() const noexcept;
};

/// The GIDs of one port to use towards a peer. A value.
struct GidChoice {
  std::vector<GidEntry> gids{};  ///< the best first, then others of which the peer may fit one better; at least one
  std::string explanation{};     ///< "GID 1 ::ffff:10.2.0.1 (RoCE v2): the route to 10.2.0.2 leaves by va, ..."
};
/// The most GIDs of a choice: of each kind (RoCE v1 and v2, IPv4 and IPv6, three reaches) the best, as a peer that has
/// none of one kind may have one of another.
inline constexpr std::size_t kMaxGidChoices = 12;

/// How a port, or a GID of it, stands to the route. The better first.
enum class RouteFit : std::uint8_t {
  kSource,     ///< the GID is the route's source address
  kInterface,  ///< it belongs to the interface by which the route leaves
  kElsewhere,  ///< neither, or no route is known
};
/// The best fit of the port's GIDs that the options allow and this name space can use.
[[nodiscard]] RouteFit route_fit(const AddressingInput& input, const PortFacts& port);

/// Ranks the GIDs of a port. What counts, in this order: being the route's source address; belonging to the interface
/// by which the route leaves; being routable, then link-local, then loopback; RoCE v2 before v1; IPv4 before IPv6 (both
/// ends need the same); a lower index. A GID whose interface is not in this name space is of no use. An index given by
/// input.options wins over everything.
///
/// Returns  kNoUsableGid: none of the wanted type, none of this name space, or the one asked for is empty. The context
///          lists the table
[[nodiscard]] Result<GidChoice> choose_gids(const AddressingInput& input, const PortFacts& port);

/// A device, one of its ports, and its GIDs. A value.
struct AddressChoice {
  std::size_t device = 0;  ///< in AddressingInput::devices
  std::uint8_t port = 1;
  std::string explanation{};  ///< one line: "chose rxe_a port 1 GID 1 ..., not mlx5_1 port 1: it is DOWN"
};

/// Chooses a device and a port. In this order: a port with a GID, or an IP over InfiniBand interface, on the route;
/// any other hardware with a routable GID, or on InfiniBand; hardware with link-local GIDs only; a software device; a
/// device without a usable GID. Among equals the first one. With options.name only that device counts.
///
/// Returns  kNoDevice: there is none, or none of that name (the context lists those there are);
///          kNoActivePort: no port is ACTIVE, or none of those can be used (the context says why not, for each);
///          kInvalidArgument: a port that the device does not have
[[nodiscard]] Result<AddressChoice> choose_address(const AddressingInput& input);

}  // namespace rdmacomm
