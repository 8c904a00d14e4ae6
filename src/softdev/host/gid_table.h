// gid_table.h - the GIDs of soft0: this host's addresses.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <vector>

#include "softdev/host/soft_device.h"

namespace rdmacomm::softdev {

/// A number that is the same for all processes of this host until it boots again, and for none of another: node GUID and
/// interface id of the device with this index. Network namespaces of one machine are different hosts.
[[nodiscard]] std::uint64_t device_guid(unsigned index);

/// The LID of the device with this index, where its port says it is InfiniBand.
[[nodiscard]] std::uint16_t local_lid(unsigned index);
[[nodiscard]] bool is_local_lid(std::uint16_t lid);

/// The GID table of port 1, laid out as on ConnectX: pairs of a RoCE v1 and a RoCE v2 entry, first for the link-local
/// address of the first interface that is up, then for each IPv4 address (mapped), each IPv6 address, the link-local
/// addresses of the other interfaces; loopback last. Each names its interface. Where no interface has a link-local
/// address the first pair is made of the device's GUID, and of no interface (0). InfiniBand: the default GID.
/// Returns  0, or an errno value where the system does not tell the addresses: EMFILE, ENFILE, ENOMEM; `table` is as it was
/// Cost: system calls.
[[nodiscard]] int gid_table(const DeviceIdentity& identity, std::vector<ibv_gid_entry>& table);

/// Whether `gid` is served by this host: an entry of `table`, any loopback address, or one of its devices' own.
[[nodiscard]] bool is_local_gid(const std::vector<ibv_gid_entry>& table, const ibv_gid& gid);

/// Where a target is, seen from an entry of a GID table.
struct TargetPlace {
  bool on_this_host = false;    ///< is_local_gid(): it is, or is not, reached without leaving this network namespace
  std::uint32_t interface = 0;  ///< index of the one by which a link-local IPv6 target is reached, as for
                                ///< sockaddr_in6::sin6_scope_id; 0: the routes know, or the entry is of no interface
};

/// table       the device's, as gid_table() gave it
/// sgid_index  of the address that the target is reached from (ibv_global_route); its interface is what a link-local
///             target is meant to be on. Beyond the table: none
/// target      any GID that is no group's
[[nodiscard]] TargetPlace place_of(const std::vector<ibv_gid_entry>& table, std::uint32_t sgid_index,
                                   const ibv_gid& target);

/// Whether it names a group, and no port.
[[nodiscard]] bool is_multicast(const ibv_gid& gid) noexcept;

}  // namespace rdmacomm::softdev
