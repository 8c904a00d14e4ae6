// The verbs of addresses: address handles and multicast groups.
#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <memory>

#include "softdev/context/soft_context.h"
#include "softdev/host/gid_table.h"
#include "softdev/host/soft_ah.h"
#include "softdev/memory/soft_pd.h"
#include "softdev/queues/soft_qp.h"
#include "softdev/verbs/soft_verbs.h"
#include "verbs/gid.h"

namespace rdmacomm::softdev {

ibv_ah* create_ah(ibv_pd* pd, ibv_ah_attr* attributes) {
  if (const int error = refusal(pd->context, FaultCall::kCreateAh); error != 0) return fail<ibv_ah>(error);
  SoftContext& context = SoftContext::from(pd->context);
  const DeviceIdentity& identity = context.identity();
  if (!identity.has_port(attributes->port_num)) return fail<ibv_ah>(EINVAL);
  std::vector<ibv_gid_entry> table;
  std::vector<ibv_gid_entry> host;
  Route route;
  int error = context.gid_table(table, &host);
  if (error == 0) error = find_route(identity, table, host, *attributes, context.tcp_use(), route);
  if (error != 0) return fail<ibv_ah>(error);
  auto ah = std::make_unique<SoftAh>();
  ah->context = pd->context;
  ah->pd = pd;
  ah->attributes = *attributes;
  ah->route = route;
  if (identity.infiniband) ah->source_lid = local_lid(identity.index, attributes->port_num);
  if (attributes->is_global != 0) {
    const ibv_gid_entry source = at_port(table[attributes->grh.sgid_index], attributes->port_num);
    ah->source = source.gid;
    ah->is_routable = source.gid_type == IBV_GID_TYPE_ROCE_V2;
  }
  ++SoftPd::from(pd).users;
  return ah.release();
}

int destroy_ah(ibv_ah* ah) {
  --SoftPd::from(ah->pd).users;
  delete &SoftAh::from(ah);
  return 0;
}

int init_ah_from_wc(ibv_context* context, std::uint8_t port, const ibv_wc& wc, const ibv_grh* header,
                    ibv_ah_attr& attributes) {
  attributes = {};
  attributes.dlid = wc.slid;
  attributes.sl = wc.sl;
  attributes.src_path_bits = wc.dlid_path_bits;
  attributes.port_num = port;
  if ((wc.wc_flags & IBV_WC_GRH) == 0) return 0;
  const HeaderAddresses addresses = read_header(*header);
  SoftContext& soft = SoftContext::from(context);
  std::vector<ibv_gid_entry> table;
  if (const int error = soft.gid_table(table); error != 0) {
    errno = error;
    return -1;
  }
  const ibv_gid_type roce = addresses.is_routable ? IBV_GID_TYPE_ROCE_V2 : IBV_GID_TYPE_ROCE_V1;
  const ibv_gid_type type = soft.identity().infiniband ? IBV_GID_TYPE_IB : roce;
  const auto own = std::ranges::find_if(table, [&addresses, type, port](const ibv_gid_entry& entry) {
    // An ibv_ah_attr has 8 bits for the index.
    return entry.gid_index <= UINT8_MAX && entry.gid_type == type &&
           verbs::equal(at_port(entry, port).gid, addresses.target);
  });
  if (own == table.end()) {
    errno = ENOENT;
    return -1;
  }
  attributes.is_global = 1;
  attributes.grh = {addresses.source, addresses.flow_label, static_cast<std::uint8_t>(own->gid_index),
                    addresses.hop_limit, addresses.traffic_class};
  return 0;
}

ibv_ah* create_ah_from_wc(ibv_pd* pd, const ibv_wc& wc, const ibv_grh* header, std::uint8_t port) {
  ibv_ah_attr attributes{};
  return init_ah_from_wc(pd->context, port, wc, header, attributes) == 0 ? create_ah(pd, &attributes) : nullptr;
}

int attach_mcast(ibv_qp* qp, const ibv_gid* group, std::uint16_t /*lid*/) {
  if (const int error = device_error(qp->context); error != 0) return error;
  return SoftQp::from(qp).join(*group);
}

int detach_mcast(ibv_qp* qp, const ibv_gid* group, std::uint16_t /*lid*/) {
  return SoftQp::from(qp).leave(*group);
}

}  // namespace rdmacomm::softdev
