// gid_table.h - the GIDs of soft0: this host's addresses.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <vector>

#include "softdev/host/soft_device.h"

namespace rdmacomm::softdev {

/// The node GUID and interface id of the device with this index. All processes of this host get the same value until
/// the next boot; another host gets a different one. Network namespaces of one machine are different hosts.
[[nodiscard]] std::uint64_t device_guid(unsigned index);

/// The LID of a port of the device with this index, if its ports report InfiniBand.
[[nodiscard]] std::uint16_t local_lid(unsigned index, unsigned port = 1);
[[nodiscard]] bool is_local_lid(std::uint16_t lid);

/// The GID table of port 1, in the same layout as on ConnectX: pairs of a RoCE v1 and a RoCE v2 entry. The first pair
/// is for the link-local address of the first interface that is up. Pairs for each IPv4 address (mapped), each IPv6
/// address, the link-local addresses of the other interfaces, and the loopback addresses follow. Each entry has the
/// index of its interface. If no interface has a link-local address, the first pair is made from the device's GUID and
/// has interface 0. InfiniBand: the default GID only. A device that belongs to an interface has only the addresses of
/// this interface.
/// Returns  0, or an errno value if the system cannot list the addresses (EMFILE, ENFILE, ENOMEM); then `table` is
///          unchanged.
/// Cost: system calls.
[[nodiscard]] int gid_table(const DeviceIdentity& identity, std::vector<ibv_gid_entry>& table);

/// The GIDs at which this host is reached, seen from a device: its own table, or for a device that belongs to an
/// interface a table of all addresses. That table includes the addresses of interfaces that are down, because they may
/// come up again.
/// Returns  as gid_table()
[[nodiscard]] int host_gids(const DeviceIdentity& identity, std::vector<ibv_gid_entry>& table);

/// An entry of port 1 as it is in the table of another port: all ports of a RoCE device have the same GIDs, and an
/// InfiniBand port has a GID of its own.
[[nodiscard]] ibv_gid_entry at_port(const ibv_gid_entry& entry, unsigned port) noexcept;

/// True if this host serves `gid`: it is an entry of `table`, which is from host_gids(), a loopback address, or a GID of one of its devices.
[[nodiscard]] bool is_local_gid(const std::vector<ibv_gid_entry>& table, const ibv_gid& gid);

/// The location of a target, seen from an entry of a GID table.
struct TargetPlace {
  bool on_this_host = false;  ///< is_local_gid(): true if it is reached within this network namespace
  /// Index of the interface through which a link-local IPv6 target is reached, as in sockaddr_in6::sin6_scope_id. 0:
  /// the kernel's routes decide, or the entry has no interface.
  std::uint32_t interface = 0;
};

/// table       the device's table from gid_table()
/// host        the table from host_gids()
/// sgid_index  the entry from which the target is reached (ibv_global_route). A link-local target is reached through
///             the interface of this entry. An index beyond the table has no interface.
/// target      any GID except a multicast GID
[[nodiscard]] TargetPlace place_of(const std::vector<ibv_gid_entry>& table, const std::vector<ibv_gid_entry>& host,
                                   std::uint32_t sgid_index, const ibv_gid& target);

/// True if `gid` is the address of a multicast group, not of a port. RoCE v2 also has groups with IPv4 addresses.
[[nodiscard]] bool is_multicast(const ibv_gid& gid) noexcept;

}  // namespace rdmacomm::softdev
