// qp_transition.h - the state transitions of a queue pair as data: RESET -> INIT -> RTR -> RTS, and to ERR.
// Layer: adapter. Uses: verbs.   Source: ibv_modify_qp(3)
#pragma once

#include <infiniband/verbs.h>

#include <optional>
#include <string>

#include "rdmacomm/adapter.h"
#include "rdmacomm/qp_address.h"

namespace rdmacomm {

/// The local and the remote address of a connection. A value.
struct QpPath {
  QpAddress local;        ///< the local queue pair
  QpAddress remote;       ///< the peer's queue pair
  int gid_index = 0;      ///< of local.gid in the port's GID table
  std::uint8_t port = 1;  ///< the local port

  /// The path MTU: the smaller of the local and the remote MTU.
  [[nodiscard]] std::uint32_t mtu_bytes() const noexcept;
  /// Whether packets carry a global route header: always on Ethernet; on InfiniBand when the peer is in another
  /// subnet (GID prefix) or has no LID.
  [[nodiscard]] bool needs_global_route() const noexcept;
  /// Whether the peers can be connected at all. kIncompatiblePeer: different transport, link layer, partition, GID type
  /// or, for RoCE v2, IP version; the context has both values.
  [[nodiscard]] Status check_compatible() const;

 private:
  [[nodiscard]] Status check_partitions() const;
};

/// One call of modify_qp: the target state, the attributes and their mask. A value.
struct QpTransition {
  std::optional<ibv_qp_state> from;  ///< the state it starts in; empty: any
  ibv_qp_state to = IBV_QPS_ERR;
  ibv_qp_attr attributes{};
  int mask = 0;

  [[nodiscard]] static QpTransition to_init(const AdapterConfig& config, std::uint8_t port, bool atomics);
  [[nodiscard]] static QpTransition to_rtr(const AdapterConfig& config, const QpPath& path);
  [[nodiscard]] static QpTransition to_rts(const AdapterConfig& config, const QpPath& path);
  [[nodiscard]] static QpTransition to_error();
  /// Takes over the values that a connection manager has set in `managed`: the path, and the peer's numbers. The MTU
  /// becomes the smaller one; a configured service level and traffic class stay.
  void follow(const ibv_qp_attr& managed) noexcept;
  /// "INIT -> RTR with MTU 4096, ...": the values that matter when the device refuses.
  [[nodiscard]] std::string to_text() const;
};

}  // namespace rdmacomm
