// own_place.h - finds the rank of this process in a cluster, and the address to listen at.
#pragma once

#include <vector>

#include "connector/host_address.h"
#include "mesh_comm_service/cluster.h"
#include "mesh_comm_service/host_book.h"
#include "rdmacomm/result.h"

namespace rdmacomm::mesh {

/// Whether one of the addresses belongs to this machine.
[[nodiscard]] bool is_local(const std::vector<HostAddress>& addresses);

/// The rank of the one node whose host is this machine.
/// Returns  kInvalidArgument: no node is on this machine, or several are (the context lists them, and how to choose).
///          If none is and a host has no address, the error for the first such host
[[nodiscard]] Result<int> find_rank(const Cluster& cluster, HostBook& hosts);

/// Whether node `rank`, which is this one, must listen at all of its addresses instead of the one in the list. This is
/// so in two cases. The name means the loopback interface here, as on many hosts (127.0.1.1 in /etc/hosts), and the
/// other nodes are not on the loopback interface. Or the address is not found, or not one of this machine, as behind a
/// router that translates addresses.
[[nodiscard]] bool listens_everywhere(const Cluster& cluster, int rank, HostBook& hosts);

}  // namespace rdmacomm::mesh
