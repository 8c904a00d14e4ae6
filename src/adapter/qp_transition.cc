#include "adapter/qp_transition.h"

#include <algorithm>

#include "verbs/describe.h"
#include "verbs/gid.h"

namespace rdmacomm {
namespace {

std::uint8_t capped(int depth, std::uint32_t cap) {
  return static_cast<std::uint8_t>(std::min({static_cast<std::uint32_t>(depth), cap, std::uint32_t{255}}));
}

ibv_ah_attr address_handle(const AdapterConfig& config, const QpPath& path) {
  ibv_ah_attr handle{};
  handle.port_num = path.port;
  handle.sl = config.service_level;
  handle.dlid = path.remote.lid;
  if (path.needs_global_route()) {
    handle.is_global = 1;
    handle.grh.dgid = verbs::to_ibv(path.remote.gid);
    handle.grh.sgid_index = static_cast<std::uint8_t>(path.gid_index);
    handle.grh.hop_limit = config.hop_limit;
    handle.grh.traffic_class = config.traffic_class;
  }
  return handle;
}

}  // namespace

std::uint32_t QpPath::mtu_bytes() const noexcept {
  return std::min(local.mtu_bytes, remote.mtu_bytes);
}

bool QpPath::needs_global_route() const noexcept {
  if (local.link_layer != IBV_LINK_LAYER_INFINIBAND) return true;
  return remote.lid == 0 || !verbs::same_subnet(local.gid, remote.gid);
}

Status QpPath::check_compatible() const {
  const auto incompatible = [this](const std::string& what) {
    return make_error(Errc::kIncompatiblePeer, what + "; local: " + local.to_text() + "; peer: " + remote.to_text());
  };
  if (local.transport != remote.transport) {
    return incompatible("the queue pairs have different transports, " + to_text(local.transport) + " and " +
                        to_text(remote.transport) + ": choose devices of one kind");
  }
  if (local.link_layer != remote.link_layer) {
    return incompatible("the queue pairs have different link layers, " + verbs::link_layer_text(local.link_layer) +
                        " and " + verbs::link_layer_text(remote.link_layer) + ": choose devices of one fabric");
  }
  if (local.gid_type != remote.gid_type) {
    return incompatible("the queue pairs have different GID types, " + verbs::gid_type_text(local.gid_type) + " and " +
                        verbs::gid_type_text(remote.gid_type) + ": choose the same GID type at both peers (gid_type)");
  }
  if (local.gid_type == IBV_GID_TYPE_ROCE_V2 && verbs::is_mapped_ipv4(local.gid) != verbs::is_mapped_ipv4(remote.gid)) {
    return incompatible(
        "one queue pair has an IPv4 GID and the other an IPv6 GID: choose the same IP version at both peers "
        "(gid_index)");
  }
  return check_partitions();
}

// A P_Key's highest bit means: full member. Limited members reach full members only. Source: ibv_query_pkey(3), IPoIB.
Status QpPath::check_partitions() const {
  if (local.pkey == 0 || remote.pkey == 0) return {};
  const std::string both =
      "local: P_Key " + verbs::pkey_text(local.pkey) + "; peer: P_Key " + verbs::pkey_text(remote.pkey);
  if (((local.pkey ^ remote.pkey) & 0x7fff) != 0) {
    return make_error(Errc::kIncompatiblePeer, "the queue pairs are in different partitions; " + both +
                                                   ": choose the same P_Key at both peers (pkey)");
  }
  if (((local.pkey | remote.pkey) & 0x8000) != 0) return {};
  return make_error(Errc::kIncompatiblePeer, "both queue pairs are limited members of their partition; " + both +
                                                 ": the subnet manager must make one of them a full member");
}

QpTransition QpTransition::to_init(const AdapterConfig& config, std::uint8_t port, bool atomics) {
  QpTransition transition;
  transition.from = IBV_QPS_RESET;
  transition.to = IBV_QPS_INIT;
  ibv_qp_attr& attributes = transition.attributes;
  attributes.qp_state = IBV_QPS_INIT;
  attributes.pkey_index = config.pkey_index;
  attributes.port_num = port;
  // All kinds of remote access that the device supports are allowed here. The registration of each buffer grants or
  // denies access, so limiting it here, too, would only add a second place for errors.
  attributes.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
  if (atomics) attributes.qp_access_flags |= IBV_ACCESS_REMOTE_ATOMIC;
  transition.mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
  return transition;
}

QpTransition QpTransition::to_rtr(const AdapterConfig& config, const QpPath& path) {
  QpTransition transition;
  transition.from = IBV_QPS_INIT;
  transition.to = IBV_QPS_RTR;
  ibv_qp_attr& attributes = transition.attributes;
  attributes.qp_state = IBV_QPS_RTR;
  // Both MTUs are valid: decode() and validate() have checked them. The smallest one is used if there is a bug there.
  if (!verbs::mtu_from_bytes(path.mtu_bytes(), attributes.path_mtu)) attributes.path_mtu = IBV_MTU_256;
  attributes.dest_qp_num = path.remote.qpn;
  attributes.rq_psn = path.remote.psn;
  attributes.max_dest_rd_atomic = capped(255, path.local.max_read_depth);
  attributes.min_rnr_timer = config.min_rnr_timer_code();  // 1: 10 us ... 31: 491.52 ms, 0: 655.36 ms
  attributes.ah_attr = address_handle(config, path);
  transition.mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  return transition;
}

QpTransition QpTransition::to_rts(const AdapterConfig& config, const QpPath& path) {
  QpTransition transition;
  transition.from = IBV_QPS_RTR;
  transition.to = IBV_QPS_RTS;
  ibv_qp_attr& attributes = transition.attributes;
  attributes.qp_state = IBV_QPS_RTS;
  attributes.timeout = config.ack_timeout_code();  // 4.096 us * 2^n
  attributes.retry_cnt = config.retry_count;       // 0..7 times
  attributes.rnr_retry = config.rnr_retry;         // 0..6 times, 7: for ever
  attributes.sq_psn = path.local.psn;
  attributes.max_rd_atomic = capped(config.max_read_depth.value_or(0), path.remote.max_read_depth);
  transition.mask =
      IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;
  return transition;
}

QpTransition QpTransition::to_error() {
  QpTransition transition;
  transition.to = IBV_QPS_ERR;
  transition.attributes.qp_state = IBV_QPS_ERR;
  transition.mask = IBV_QP_STATE;
  return transition;
}

void QpTransition::follow(const ibv_qp_attr& managed) noexcept {
  if ((mask & IBV_QP_AV) != 0) {
    const ibv_ah_attr own = attributes.ah_attr;
    attributes.ah_attr = managed.ah_attr;
    if (own.sl != 0) attributes.ah_attr.sl = own.sl;
    if (own.grh.traffic_class != 0) attributes.ah_attr.grh.traffic_class = own.grh.traffic_class;
    attributes.path_mtu = std::min(attributes.path_mtu, managed.path_mtu);
    attributes.dest_qp_num = managed.dest_qp_num;
  }
  attributes.rq_psn = managed.rq_psn;
  attributes.sq_psn = managed.sq_psn;
}

std::string QpTransition::to_text() const {
  const auto value = [this](int bit, const char* name, auto number) {
    return (mask & bit) != 0 ? std::string(", ") + name + " " + std::to_string(number) : std::string();
  };
  std::string text = (from ? verbs::to_text(*from) : std::string("any state")) + " -> " + verbs::to_text(to);
  text += value(IBV_QP_PORT, "port", attributes.port_num);
  text += value(IBV_QP_PKEY_INDEX, "P_Key index", attributes.pkey_index);
  text += value(IBV_QP_PATH_MTU, "MTU", verbs::mtu_bytes(attributes.path_mtu));
  text += value(IBV_QP_AV, "GID index", attributes.ah_attr.grh.sgid_index);
  text += value(IBV_QP_AV, "LID", attributes.ah_attr.dlid);
  text += value(IBV_QP_MAX_DEST_RD_ATOMIC, "read depth accepted", attributes.max_dest_rd_atomic);
  text += value(IBV_QP_MIN_RNR_TIMER, "min_rnr_timer code", attributes.min_rnr_timer);
  text += value(IBV_QP_TIMEOUT, "timeout code", attributes.timeout);
  text += value(IBV_QP_RETRY_CNT, "retry_count", attributes.retry_cnt);
  text += value(IBV_QP_RNR_RETRY, "rnr_retry", attributes.rnr_retry);
  text += value(IBV_QP_MAX_QP_RD_ATOMIC, "read depth", attributes.max_rd_atomic);
  return text;
}

}  // namespace rdmacomm
