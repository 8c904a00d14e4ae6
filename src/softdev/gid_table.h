// gid_table.h - the GIDs of soft0: this host's addresses.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <vector>

#include "softdev/soft_device.h"

namespace rdmacomm::softdev {

/// A number that is the same for all processes of this host until it boots again: node GUID and interface id of the
/// device with this index.
[[nodiscard]] std::uint64_t device_guid(unsigned index);

/// The LID of the device with this index, where its port says it is InfiniBand.
[[nodiscard]] std::uint16_t local_lid(unsigned index);
[[nodiscard]] bool is_local_lid(std::uint16_t lid);

/// The GID table of port 1, laid out as on ConnectX: pairs of a RoCE v1 and a RoCE v2 entry, first for the
/// link-local address, then for each IPv4 address (mapped), then for each IPv6 address; loopback last. InfiniBand:
/// the default GID.
/// Cost: system calls.
[[nodiscard]] std::vector<ibv_gid_entry> gid_table(const DeviceIdentity& identity);

/// Whether `gid` is served by this host: an entry of `table`, any loopback address, or one of its devices' own.
[[nodiscard]] bool is_local_gid(const std::vector<ibv_gid_entry>& table, const ibv_gid& gid);

/// Whether it names a group, and no port.
[[nodiscard]] bool is_multicast(const ibv_gid& gid) noexcept;

/// Whether a target, or a multicast group, at this address can be reached: 0, or an errno value. `table`: the device's.
[[nodiscard]] int check_address(const DeviceIdentity& identity, const std::vector<ibv_gid_entry>& table,
                                const ibv_ah_attr& address);

}  // namespace rdmacomm::softdev
