#include "softdev/host/target_route.h"

#include <netinet/in.h>

#include <cerrno>

#include "softdev/host/gid_table.h"
#include "verbs/gid.h"

namespace rdmacomm::softdev {

bool read_tcp_use(std::string_view text, TcpUse& use) noexcept {
  if (text.empty() || text == "auto") {
    use = TcpUse::kOtherHosts;
  } else if (text == "tcp") {
    use = TcpUse::kAlways;
  } else if (text == "memory") {
    use = TcpUse::kNever;
  } else {
    return false;
  }
  return true;
}

Route loopback_route() {
  sockaddr_in loopback{};
  loopback.sin_family = AF_INET;
  loopback.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const ibv_gid gid = verbs::gid_of(reinterpret_cast<const sockaddr&>(loopback));
  return {false, gid, gid, 0};
}

LinkTerms sending_terms(const DeviceIdentity& identity, const std::vector<ibv_gid_entry>& table, unsigned port,
                        const ibv_ah_attr& address) {
  LinkTerms terms;
  if (identity.infiniband) {
    terms.source_lid = local_lid(identity.index, port);
    terms.target_lid = address.dlid;
  }
  if (address.is_global != 0) {
    const ibv_gid_entry source = at_port(table[address.grh.sgid_index], port);
    terms.source = source.gid;
    terms.target = address.grh.dgid;
    terms.gid_type = source.gid_type;
  }
  return terms;
}

int find_route(const DeviceIdentity& identity, const std::vector<ibv_gid_entry>& table,
               const std::vector<ibv_gid_entry>& host, const ibv_ah_attr& address, TcpUse use, Route& route) {
  route = {};
  if (address.is_global == 0) {
    if (!identity.infiniband) return EINVAL;  // RoCE has no addresses except GIDs
    if (!is_local_lid(address.dlid)) return EHOSTUNREACH;
  } else {
    if (address.grh.sgid_index >= table.size()) return EINVAL;
    const ibv_gid& target = address.grh.dgid;
    if (is_multicast(target)) return 0;
    const TargetPlace place = place_of(table, host, address.grh.sgid_index, target);
    if (!place.on_this_host) {
      const ibv_gid_entry& source = table[address.grh.sgid_index];
      // Both must be of one address family, and the source must belong to an interface. The GID made from the device's
      // GUID is no IP address.
      const bool alike = verbs::is_mapped_ipv4(source.gid) == verbs::is_mapped_ipv4(target);
      if (use == TcpUse::kNever || identity.infiniband || !alike || source.ndev_ifindex == 0) return EHOSTUNREACH;
      route = {false, source.gid, target, place.interface};
      return 0;
    }
  }
  if (use == TcpUse::kAlways) route = loopback_route();
  return 0;
}

}  // namespace rdmacomm::softdev
