// qp_transition.h - the moves of a queue pair's life as data: RESET -> INIT -> RTR -> RTS, and to ERR.
// Layer: adapter. Uses: base, verbs, device.   Source: ibv_modify_qp(3)
#pragma once

#include <infiniband/verbs.h>

#include <optional>

#include "rdmacomm/adapter/adapter_config.h"
#include "rdmacomm/verbs/qp_address.h"

namespace rdmacomm {

/// One call of modify_qp: where it leads, the attributes and the mask that names them. A value.
struct QpTransition {
  ibv_qp_state from;  ///< the state it starts in; to_error() is allowed from every state
  ibv_qp_state to;
  ibv_qp_attr attributes{};
  int mask = 0;

  [[nodiscard]] static QpTransition to_init(const AdapterConfig& config, std::uint8_t port);
  /// mtu_bytes: the path MTU agreed on. local: this end's own address (GID index, link layer).
  [[nodiscard]] static QpTransition to_rtr(const AdapterConfig& config, const verbs::QpAddress& local, int local_gid_index,
                                           std::uint8_t port, const verbs::QpAddress& remote);
  [[nodiscard]] static QpTransition to_rts(const AdapterConfig& config, const verbs::QpAddress& local,
                                           const verbs::QpAddress& remote);
  [[nodiscard]] static QpTransition to_error();
};

}  // namespace rdmacomm
