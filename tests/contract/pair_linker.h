// pair_linker.h - the one place of the contract tests that knows how two queue pairs are connected.
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
  QpAddress address;  ///< what the other end must know of it
  AdapterConfig config;
  std::string ip;  ///< of `device`, for rdma_cm
  /// Moves the queue pair to RTS, towards `remote`. After rdma_cm has done so, it only takes note (see
  /// cm_linked_api()).
  std::function<Status(const QpAddress& remote)> move;
};

/// What a connection needs as long as it lives.
class Link {
 public:
  Link() = default;
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;
  virtual ~Link() = default;
  /// Waits until it is said that the connection has ended. false: nobody says so, or not by the deadline.
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

  /// By rdma_cm or by modify_qp, as links_by_cm() says.
  [[nodiscard]] static std::unique_ptr<PairLinker> create();

  /// Links one end; meanwhile another thread or process links the other, in the other role. Returns when both are
  /// linked.
  /// line   one end of a socket pair between the two
  [[nodiscard]] virtual Result<std::unique_ptr<Link>> link(const LinkEnd& end, Role role, int line) = 0;

  /// Links two ends of this process, `active` being the one that connects.
  struct Both {
    std::unique_ptr<Link> active;
    std::unique_ptr<Link> passive;
  };
  [[nodiscard]] Result<Both> link_both(const LinkEnd& active, const LinkEnd& passive);
};

/// A channel's queue pair as an end.
[[nodiscard]] LinkEnd link_end(AdapterCore& adapter, const std::string& ip);
/// A bare queue pair, in INIT, as an end.
[[nodiscard]] LinkEnd link_end(DeviceCore& device, ibv_qp* qp, const GidEntry& gid, const AdapterConfig& config,
                               const std::string& ip);

/// libibverbs, for queue pairs that rdma_cm moves: its modify_qp takes RTR and RTS for done.
[[nodiscard]] const verbs::Api& cm_linked_api();

/// Sends `mine` over `line` and waits for the other end's. An end that died is an error.
[[nodiscard]] Result<QpAddress> exchange_addresses(const QpAddress& mine, int line);
/// Returns when both ends have called it.
[[nodiscard]] Status meet(int line);

}  // namespace rdmacomm::contract
