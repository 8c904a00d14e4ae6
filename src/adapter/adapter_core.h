// adapter_core.h - one reliable-connected queue pair and its transitions.
// Layer: adapter. Uses: base, verbs, device.
#pragma once

#include <atomic>
#include <memory>
#include <optional>

#include "adapter/qp_transition.h"
#include "device/device_core.h"
#include "device/native_queue.h"
#include "device/protection_domain_core.h"
#include "device/shared_receive_queue.h"
#include "rdmacomm/adapter.h"
#include "rdmacomm/qp_address.h"
#include "rdmacomm/result.h"
#include "verbs/handles.h"
#include "verbs/queue_pair_link.h"

namespace rdmacomm {

/// Owns an ibv_qp of type RC. A resource: neither copyable nor movable.
/// Threads: connect and to_error from one thread at a time; state() and query_state() from any.
/// Lifetime: must not outlive its DeviceCore and its completion queues.
class AdapterCore {
 public:
  /// Creates the queue pair on `device` and moves it to INIT: from then on receives can be posted.
  ///
  /// send_cq, recv_cq  may be the same; room for the send and the receive depth is reserved in them
  /// gid      the GID that peers will address; from DeviceCore::choose_gid
  /// receives  the shared receive queue to use; nullptr: a queue of its own, of config.recv_depth. With a shared queue
  ///           the caller reserves room for its receives in recv_cq, once for all queue pairs
  /// domain   a protection domain on `device`, which the queue pair keeps alive; nullptr: the device's own
  /// Returns  kInvalidArgument, kBeyondDeviceLimit: config.validate(); kInvalidArgument also: a P_Key that the port
  ///          does not have (the context lists the table); kBeyondDeviceLimit also: inline data (the context has the
  ///          requested size and the limit that was found); kCompletionQueueFull; or the system's error
  [[nodiscard]] static Result<std::unique_ptr<AdapterCore>> create(
      DeviceCore& device, NativeQueue& send_cq, NativeQueue& recv_cq, const GidEntry& gid, const AdapterConfig& config,
      SharedReceiveQueue* receives = nullptr, std::shared_ptr<ProtectionDomainCore> domain = nullptr);
  AdapterCore(const AdapterCore&) = delete;
  AdapterCore& operator=(const AdapterCore&) = delete;
  ~AdapterCore();

  /// Selects another GID of the port for peers to address. Before connect(). kWrongState: not in INIT any more.
  [[nodiscard]] Status use_gid(const GidEntry& gid);
  /// The address that the peer needs to connect to this queue pair.
  [[nodiscard]] const QpAddress& address() const noexcept { return address_; }
  /// The argument of connect(); empty before.
  [[nodiscard]] const std::optional<QpAddress>& remote_address() const noexcept { return remote_; }
  /// The smaller of the local and the remote MTU; 0 before connect().
  [[nodiscard]] std::uint32_t path_mtu_bytes() const noexcept;

  /// Moves INIT -> RTR -> RTS towards `remote`. Both peers call it, in any order.
  ///
  /// Returns  kWrongState: not in INIT; kIncompatiblePeer: another link layer or GID type (the context has both
  ///          values); or the device's error (for example: no route to the peer's GID), with the transition, its values
  ///          and the likely cause
  /// After an error the queue pair cannot be used any more.
  [[nodiscard]] Status connect(const QpAddress& remote);
  /// As above, through a connection manager: `link` belongs to this queue pair, which keeps it. If the configuration
  /// has no P_Key, the link's is used.
  /// Returns  also kInvalidArgument: the link uses another P_Key than the configuration (the context has both); or an
  ///          error of `link`
  [[nodiscard]] Status connect(const QpAddress& remote, std::unique_ptr<verbs::QueuePairLink> link);
  /// Moves to ERR from any state: outstanding requests complete as kFlushed.
  [[nodiscard]] Status to_error();
  /// The current state on the device, which is also ERR if the device moved there by itself. Cost: a verbs call.
  [[nodiscard]] Result<ibv_qp_state> query_state() const;

  /// The configuration given to create(), with all empty fields filled in, and the P_Key's index; with shared receives
  /// recv_depth is 0.
  [[nodiscard]] const AdapterConfig& config() const noexcept { return config_; }
  /// The inline limit that the device granted, at least config().max_inline_bytes.
  [[nodiscard]] std::uint32_t max_inline_bytes() const noexcept { return max_inline_bytes_; }
  [[nodiscard]] DeviceCore& device() const noexcept { return device_; }
  /// nullptr: the device's own protection domain.
  [[nodiscard]] const std::shared_ptr<ProtectionDomainCore>& domain() const noexcept { return domain_; }
  [[nodiscard]] ibv_pd* pd() const noexcept { return domain_ ? domain_->pd() : device_.pd(); }
  [[nodiscard]] NativeQueue& send_cq() const noexcept { return send_cq_; }
  [[nodiscard]] NativeQueue& recv_cq() const noexcept { return recv_cq_; }
  [[nodiscard]] ibv_qp* qp() const noexcept { return qp_.get(); }
  [[nodiscard]] SharedReceiveQueue* shared_receives() const noexcept { return receives_; }

  /// The state that was set locally: INIT, RTR, RTS or ERR. Cost: one load.
  [[nodiscard]] ibv_qp_state state() const noexcept { return state_.load(std::memory_order_relaxed); }
  /// Whether sends may be posted: RTS was reached and not left locally. Cost: one load.
  [[nodiscard]] bool connected() const noexcept { return state() == IBV_QPS_RTS; }

 private:
  AdapterCore(DeviceCore& device, NativeQueue& send_cq, NativeQueue& recv_cq, const AdapterConfig& config,
              SharedReceiveQueue* receives, std::shared_ptr<ProtectionDomainCore> domain);
  Status reserve_completions();
  Status create_queue_pair();
  Status try_queue_pair(std::uint32_t inline_bytes);
  std::uint32_t find_inline_limit(std::uint32_t refused);
  Status choose_pkey();
  void fill_address(const GidEntry& gid, std::uint32_t psn);
  void set_gid(const GidEntry& gid);
  Status connect_by_link(const QpPath& path);
  Status follow_partition();
  Status apply(const QpTransition& transition);

  DeviceCore& device_;
  NativeQueue& send_cq_;
  NativeQueue& recv_cq_;
  SharedReceiveQueue* const receives_;
  const std::shared_ptr<ProtectionDomainCore> domain_;
  AdapterConfig config_;
  std::unique_ptr<verbs::QueuePairLink> link_;
  verbs::QpHandle qp_;
  int gid_index_ = 0;
  QpAddress address_;
  std::optional<QpAddress> remote_;
  std::uint32_t max_inline_bytes_ = 0;
  int reserved_send_ = 0;  // in send_cq_, released after the queue pair is destroyed
  int reserved_recv_ = 0;  // in recv_cq_
  std::atomic<ibv_qp_state> state_{IBV_QPS_RESET};
};

}  // namespace rdmacomm
