#include "mesh_comm_service/own_place.h"

#include <algorithm>
#include <optional>
#include <string>

#include "device/host_network.h"
#include "verbs/gid.h"

namespace rdmacomm::mesh {
namespace {

bool is_loopback(const HostAddress& address) {
  return verbs::reach_of(address.gid) == verbs::Reach::kHost;
}

/// Whether the host has addresses, and all of them are loopback addresses.
bool is_on_loopback(const HostBook::Addresses& addresses) {
  return addresses && std::ranges::all_of(*addresses, is_loopback);
}

}  // namespace

bool is_local(const std::vector<HostAddress>& addresses) {
  return std::ranges::any_of(addresses, [](const HostAddress& address) {
    if (is_loopback(address)) return true;  // 127.0.0.0/8, whatever source address the system uses for it
    // A machine sends packets to its own address from that same address.
    const auto source = HostNetwork::system().source_towards(address.gid, address.scope);
    return source && std::ranges::equal(source->raw, address.gid.raw);
  });
}

Result<int> find_rank(const Cluster& cluster, HostBook& hosts) {
  hosts.look_up(cluster);
  std::vector<std::size_t> found;
  std::optional<Error> unknown;  // a host without an address may matter to other nodes only
  for (std::size_t rank = 0; rank < cluster.size(); ++rank) {
    const auto& addresses = hosts.of(cluster[rank]);
    if (!addresses && !unknown) unknown = addresses.error();
    if (addresses && is_local(*addresses)) found.push_back(rank);
  }
  if (found.size() == 1) return static_cast<int>(found.front());
  if (found.empty() && unknown) return *unknown;
  if (found.empty()) {
    return make_error(Errc::kInvalidArgument,
                      "none of the nodes has an address of this host; give its rank with --rank=N, or start it on one "
                      "of the nodes");
  }
  return make_error(Errc::kInvalidArgument, "nodes " + std::to_string(found[0]) + " (" + cluster[found[0]].to_text() +
                                                ") and " + std::to_string(found[1]) + " (" +
                                                cluster[found[1]].to_text() +
                                                ") are both on this host; give the rank of this node with --rank=N");
}

bool listens_everywhere(const Cluster& cluster, int rank, HostBook& hosts) {
  const HostBook::Addresses own = hosts.of(cluster[static_cast<std::size_t>(rank)]);
  if (!own || !is_local(*own)) return true;
  if (!is_on_loopback(own)) return false;
  hosts.look_up(cluster);
  return !std::ranges::all_of(cluster, [&](const HostPort& node) { return is_on_loopback(hosts.of(node)); });
}

}  // namespace rdmacomm::mesh
