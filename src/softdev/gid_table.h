// gid_table.h - the GIDs of soft0: this host's addresses.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <vector>

namespace rdmacomm::softdev {

/// A number that is the same for all processes of this host until it boots again: node GUID and interface id.
[[nodiscard]] std::uint64_t host_guid();

/// The GID table of port 1, laid out as on ConnectX: pairs of a RoCE v1 and a RoCE v2 entry, first for the
/// link-local address, then for each IPv4 address (mapped), then for each IPv6 address; loopback last.
/// Cost: system calls.
[[nodiscard]] std::vector<ibv_gid_entry> gid_table();

/// Whether `gid` is served by this host: an entry of `table`, or any loopback address.
[[nodiscard]] bool is_local_gid(const std::vector<ibv_gid_entry>& table, const ibv_gid& gid);

}  // namespace rdmacomm::softdev
