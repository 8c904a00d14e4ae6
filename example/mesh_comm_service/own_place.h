// own_place.h - which node of a cluster this process is, and where it listens.
#pragma once

#include <vector>

#include "connector/host_address.h"
#include "mesh_comm_service/cluster.h"
#include "mesh_comm_service/host_book.h"
#include "rdmacomm/result.h"

namespace rdmacomm::mesh {

/// Whether one of a host's addresses is this machine's.
[[nodiscard]] bool is_local(const std::vector<HostAddress>& addresses);

/// The rank of the one node whose host is this machine.
/// Returns  kInvalidArgument: none is, or several are (the context says which, and how to choose); or, where none is,
///          why the first host that has no address has none
[[nodiscard]] Result<int> find_rank(const Cluster& cluster, HostBook& hosts);

/// Whether node `rank`, which is this one, is to listen at all of its addresses, instead of the one in the list. There
/// are two cases. Its name stands for the loopback interface here, as on many hosts (127.0.1.1 in /etc/hosts), and
/// other nodes are not on that. Or this machine does not have the address, because a router between the nodes
/// translates addresses.
[[nodiscard]] bool listens_everywhere(const Cluster& cluster, int rank, HostBook& hosts);

}  // namespace rdmacomm::mesh
