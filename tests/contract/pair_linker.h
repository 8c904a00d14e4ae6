// pair_linker.h - connects two queue pairs. No other part of the contract tests knows how that is done.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "adapter/adapter_core.h"
#include "rdmacomm/deadline.h"

namespace rdmacomm::contract {

/// One end that is to be linked: a queue pair in INIT.
struct LinkEnd {
  DeviceCore& device;
  ibv_qp* qp;
  QpAddress address;  ///< sent to the peer
  AdapterConfig config;
  std::string ip;  ///< of `device`, for rdma_cm
  /// Moves the queue pair to RTS, towards `remote`. If rdma_cm has already moved it, only records that (see
  /// cm_linked_api()).
  std::function<Status(const QpAddress& remote)> move;
};

/// Resources that a connection needs during its lifetime.
class Link {
 public:
  Link() = default;
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;
  virtual ~Link() = default;
  /// Waits until the end of the connection is reported. Returns false if the deadline passes, or if the link never
  /// reports it.
  [[nodiscard]] virtual bool ends(Deadline /*deadline*/) { return false; }
};

enum class Role { kActive, kPassive };

/// A way to connect queue pairs.
class PairLinker {
 public:
  PairLinker() = default;
  PairLinker(const PairLinker&) = delete;
  PairLinker& operator=(const PairLinker&) = delete;
  virtual ~PairLinker() = default;

  /// Uses rdma_cm or modify_qp, according to links_by_cm().
  [[nodiscard]] static std::unique_ptr<PairLinker> create();

  /// Links one end. At the same time another thread or process must link the second end, in the opposite role. Returns
  /// when both ends are linked.
  /// line   one end of a socket pair between the two
  [[nodiscard]] virtual Result<std::unique_ptr<Link>> link(const LinkEnd& end, Role role, int line) = 0;

  /// Links two ends of this process. `active` is the end that connects.
  struct Both {
    std::unique_ptr<Link> active;
    std::unique_ptr<Link> passive;
  };
  [[nodiscard]] Result<Both> link_both(const LinkEnd& active, const LinkEnd& passive);
};

/// Describes a channel's queue pair as an end.
[[nodiscard]] LinkEnd link_end(AdapterCore& adapter, const std::string& ip);
/// Describes a bare queue pair, in INIT, as an end.
[[nodiscard]] LinkEnd link_end(DeviceCore& device, ibv_qp* qp, const GidEntry& gid, const AdapterConfig& config,
                               const std::string& ip);

/// libibverbs for queue pairs that rdma_cm moves: its modify_qp skips the moves to RTR and RTS.
[[nodiscard]] const verbs::Api& cm_linked_api();

/// Sends `mine` over `line` and waits for the peer's address. If the peer has died, returns an error.
[[nodiscard]] Result<QpAddress> exchange_addresses(const QpAddress& mine, int line);
/// Returns when both ends have called it.
[[nodiscard]] Status synchronize(int line);

}  // namespace rdmacomm::contract
