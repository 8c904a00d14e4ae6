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
/// Lifetime: must not outlive its DeviceCore and its CompletionQueues.
class AdapterCore {
 public:
  /// Creates the queue pair on `device` and moves it to INIT: receives can be posted from here on.
  ///
  /// send_cq, recv_cq  may be the same; room for the send and the receive depth is reserved in them
  /// gid      what peers will address; from DeviceCore::choose_gid
  /// receives  where it takes its receives from, or nullptr: it has a queue of its own, of config.recv_depth. Of what
  ///           may
  ///          come from there, the caller reserves room in recv_cq, once for all queue pairs
  /// domain   the protection domain, on `device`, that it is in and keeps alive; nullptr: the device's own
  /// Returns  kInvalidArgument, kBeyondDeviceLimit: config.validate(); kInvalidArgument also: a P_Key that the port
  ///          does not have (the context lists those it has); kBeyondDeviceLimit also: inline data (the context has
  ///          what was asked for and the limit that was found); kCompletionQueueFull; or the system's error
  [[nodiscard]] static Result<std::unique_ptr<AdapterCore>> create(
      DeviceCore& device, NativeQueue& send_cq, NativeQueue& recv_cq, const GidEntry& gid, const AdapterConfig& config,
      SharedReceiveQueue* receives = nullptr, std::shared_ptr<ProtectionDomainCore> domain = nullptr);
  AdapterCore(const AdapterCore&) = delete;
  AdapterCore& operator=(const AdapterCore&) = delete;
  ~AdapterCore();

  /// Has peers address it by another GID of the port. Before connect(). kWrongState: not in INIT any more.
  [[nodiscard]] Status use_gid(const GidEntry& gid);
  /// What the peer must know to connect to this queue pair.
  [[nodiscard]] const QpAddress& address() const noexcept { return address_; }
  /// What connect() was given; empty before.
  [[nodiscard]] const std::optional<QpAddress>& remote_address() const noexcept { return remote_; }
  /// The smaller of both ends' MTUs; 0 before connect().
  [[nodiscard]] std::uint32_t path_mtu_bytes() const noexcept;

  /// Moves INIT -> RTR -> RTS towards `remote`. Both ends call it, in any order.
  ///
  /// Returns  kWrongState: not in INIT; kIncompatiblePeer: other link layer or GID type (the context has both
  ///          sides); or what the device said (for example: no route to the peer's GID), with the transition, its
  ///          values and the likely cause
  /// After an error the queue pair is of no more use.
  [[nodiscard]] Status connect(const QpAddress& remote);
  /// The same with the help of a connection manager: `link` is of this queue pair, and is kept as long as it.
  /// Where no P_Key was asked for, the link's is taken.
  /// Returns  also kInvalidArgument: the link goes by another P_Key than the one asked for (the context has both); and
  ///          what link's functions return
  [[nodiscard]] Status connect(const QpAddress& remote, std::unique_ptr<verbs::QueuePairLink> link);
  /// Moves to ERR from any state: outstanding requests complete as kFlushed.
  [[nodiscard]] Status to_error();
  /// The state as the device has it now. ERR also when the device moved there by itself. Cost: a verbs call.
  [[nodiscard]] Result<ibv_qp_state> query_state() const;

  /// As given to create(), with everything that was left empty filled in, and the P_Key's index; with shared receives
  /// recv_depth is 0.
  [[nodiscard]] const AdapterConfig& config() const noexcept { return config_; }
  /// The inline limit that the device granted, at least config().max_inline_bytes.
  [[nodiscard]] std::uint32_t max_inline_bytes() const noexcept { return max_inline_bytes_; }
  [[nodiscard]] DeviceCore& device() const noexcept { return device_; }
  /// nullptr: it is in the device's own.
  [[nodiscard]] const std::shared_ptr<ProtectionDomainCore>& domain() const noexcept { return domain_; }
  [[nodiscard]] ibv_pd* pd() const noexcept { return domain_ ? domain_->pd() : device_.pd(); }
  [[nodiscard]] NativeQueue& send_cq() const noexcept { return send_cq_; }
  [[nodiscard]] NativeQueue& recv_cq() const noexcept { return recv_cq_; }
  [[nodiscard]] ibv_qp* qp() const noexcept { return qp_.get(); }
  [[nodiscard]] SharedReceiveQueue* shared_receives() const noexcept { return receives_; }

  /// The state that this side has put the queue pair into: INIT, RTR, RTS or ERR. Cost: one load.
  [[nodiscard]] ibv_qp_state state() const noexcept { return state_.load(std::memory_order_relaxed); }
  /// Sends may be posted: RTS reached and not left by this side. Cost: one load.
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
  int reserved_send_ = 0;  // in send_cq_, given back when the queue pair is gone
  int reserved_recv_ = 0;  // in recv_cq_
  std::atomic<ibv_qp_state> state_{IBV_QPS_RESET};
};

}  // namespace rdmacomm
