// device.h - RDMA devices: listing and opening them, their limits, and the events that they report.
// Layer: device. Uses: base, verbs.   How a device is chosen: docs/addressing.md
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rdmacomm/handle.h"
#include "rdmacomm/qp_address.h"
#include "rdmacomm/result.h"

struct ibv_async_event;
struct ibv_context;
struct ibv_pd;

namespace rdmacomm {

class RDMACOMM_API DeviceCore;
template <>
inline constexpr const char* detail::kHandleName<DeviceCore> = "RDMADevice";
class RDMACOMM_API ProtectionDomainCore;
template <>
inline constexpr const char* detail::kHandleName<ProtectionDomainCore> = "ProtectionDomain";

/// The type of GID that a connection uses.
enum class GidType : std::uint8_t {
  kIb = 0,      ///< InfiniBand, and iWARP
  kRoceV1 = 1,  ///< RoCE version 1: within one Ethernet network
  kRoceV2 = 2,  ///< RoCE version 2: over UDP and IP
};
[[nodiscard]] RDMACOMM_API std::string to_text(GidType type);  ///< "IB", "RoCE v1", "RoCE v2"

/// Which device and port to open. With all defaults the library chooses.
struct RDMACOMM_API DeviceOptions {
  std::string name{};     ///< "mlx5_0", "soft0", ...; empty: chosen by the route to the peer, see docs/addressing.md
  std::uint8_t port = 0;  ///< 1..number of ports; 0: chosen among the ACTIVE ports, in the same way as the device
  int gid_index = -1;     ///< 0..GID table size - 1; -1: chosen for each peer, by type and reachability
  std::optional<GidType> gid_type{};  ///< the only type to consider; empty: RoCE v2 before RoCE v1

  /// Checks gid_index, without a device. RDMADevice::open() checks the other values.
  ///
  /// Returns  kInvalidArgument: gid_index is not -1..255
  [[nodiscard]] Status validate() const;
};

/// An entry of the GID table of a port. A value.
struct RDMACOMM_API GidEntry {
  int index = 0;                ///< position in the table, for DeviceOptions::gid_index
  GidType type = GidType::kIb;  ///< the type of the connections that use it
  Gid gid{};                    ///< the address
  unsigned interface = 0;       ///< index of its network interface; 0: not known

  [[nodiscard]] std::string to_text() const;  ///< "index 3 ::ffff:10.0.0.1 (RoCE v2)"
};

/// Which other accesses a device's atomics are atomic with.
enum class AtomicScope : std::uint8_t {
  kNone,    ///< no atomics
  kDevice,  ///< other atomics of the same device
  kHost,    ///< all other accesses to that memory, also by CPUs
};

/// Registering memory without pinning it: whether the device can, and for which operations over a reliable connection.
/// A value.
struct RDMACOMM_API OnDemandPaging {
  bool supported = false;  ///< whether BufferOptions::on_demand_paging is possible at all
  bool implicit = false;   ///< one registration can cover the whole address space
  bool send = false;       ///< SENDs may use such memory
  bool receive = false;    ///< receives may use such memory
  bool write = false;      ///< WRITEs may use such memory
  bool read = false;       ///< READs may use such memory
  bool atomics = false;    ///< atomics may use such memory
};

/// The limits and abilities of a device, read when it was opened. A value.
struct RDMACOMM_API DeviceLimits {
  int max_qp_wr = 0;                    ///< requests outstanding in one send or receive queue
  int max_sge = 0;                      ///< slices of one request
  int max_sge_rd = 0;                   ///< slices of one READ
  int max_cqe = 0;                      ///< completions in one completion queue
  int max_qp = 0;                       ///< queue pairs
  int max_protection_domains = 0;       ///< protection domains of all processes together; 0: not reported
  int max_srq = 0;                      ///< shared receive queues; 0: none
  int max_srq_wr = 0;                   ///< receives in one shared receive queue
  int max_read_depth = 0;               ///< READs and atomics outstanding as the responder of one queue pair
  int max_read_depth_initiator = 0;     ///< READs and atomics outstanding as the initiator of one queue pair
  std::uint64_t max_region_bytes = 0;   ///< bytes of one registration
  std::uint32_t max_message_bytes = 0;  ///< payload bytes of one request; from the port
  std::uint32_t mtu_bytes = 0;          ///< the port's active MTU, 256..4096
  /// Whether a send that is posted in ERR completes as flushed, as the verbs require. False on siw: there the move to
  /// ERR itself empties the queue, and unsignaled requests are never reported.
  bool flushes_in_error = true;
  /// Whether the requests of a send queue complete in the order in which they were posted, as the verbs require. False
  /// on siw, where a request behind a READ completes as soon as it is sent. Channels then make it wait for the READ
  /// (IBV_SEND_FENCE).
  bool completes_in_order = true;
  bool immediate_data = true;  ///< has SEND_WITH_IMM and WRITE_WITH_IMM; not on iWARP (RFC 5040 has none)
  bool atomics = false;        ///< can execute post_fetch_add and post_compare_swap
  AtomicScope atomic_scope = AtomicScope::kNone;  ///< the accesses that atomics are atomic with; kNone: no atomics
  OnDemandPaging on_demand_paging{};              ///< registering memory without pinning it
  std::uint8_t max_service_level = 15;            ///< 15 on InfiniBand; 7, VLAN priorities, on Ethernet
};

/// A device that can be opened. A value.
struct RDMACOMM_API DeviceInfo {
  std::string name{};        ///< for DeviceOptions::name: "mlx5_0", "rxe0", "soft0"
  bool is_software = false;  ///< whether it is soft0, the software device of this library
};
/// All devices: first hardware and the kernel's rxe and siw, then soft0. Never empty. Cost: system calls.
[[nodiscard]] RDMACOMM_API std::vector<DeviceInfo> list_devices();

/// An event that a device reports, for example that a port went down. Valid only during the call that delivers it.
class RDMACOMM_API DeviceEvent {
 public:
  /// For the library. `event` must outlive this object.
  DeviceEvent(const ibv_async_event& event, std::optional<Error> failure) noexcept
      : event_(event), failure_(std::move(failure)) {}

  /// The event as the verbs return it. Its queue pair or completion queue exists during the call. The removal of the
  /// device is reported as IBV_EVENT_DEVICE_FATAL, also if the driver reports nothing.
  [[nodiscard]] const ibv_async_event& native_handle() const noexcept { return event_; }
  /// The reason, if the object of the event has failed; empty: it has not.
  ///
  /// - kDeviceLost: the device: DEVICE_FATAL
  /// - kLocalQueuePair: a queue pair: QP_FATAL (not on iWARP, whose connection reports it), QP_REQ_ERR, QP_ACCESS_ERR
  /// - kLocalQueuePair: a shared receive queue, and the queue pairs that receive from it: SRQ_ERR
  /// - kCompletionFailed: a completion queue, and the queue pairs on it: CQ_ERR
  [[nodiscard]] const std::optional<Error>& failure() const noexcept { return failure_; }

 private:
  const ibv_async_event& event_;
  std::optional<Error> failure_;
};

/// A subscription to the events of a device: while it exists, its function is called for each event. Movable. When the
/// destructor or reset() has returned, the function is not running and will not be called again.
///
/// Lifetime  keeps its device open
class RDMACOMM_API DeviceSubscription {
 public:
  DeviceSubscription() noexcept = default;  ///< no subscription
  /// Takes the subscription. The source then has none.
  DeviceSubscription(DeviceSubscription&&) noexcept = default;
  /// The same. Ends the subscription that this object had.
  DeviceSubscription& operator=(DeviceSubscription&&) noexcept = default;
  ~DeviceSubscription() = default;  ///< reset()
  /// Ends the subscription. Waits until a call of its function on another thread has returned. No effect without one.
  void reset() noexcept { state_.reset(); }

 private:
  friend class RDMADevice;
  explicit DeviceSubscription(std::shared_ptr<void> state) noexcept : state_(std::move(state)) {}
  std::shared_ptr<void> state_;
};

/// An open device and one of its ports: the verbs context and a protection domain. A handle: copies share the device.
/// The device closes when the last handle and all objects created on it are gone. The references that its functions
/// return are valid while it is open.
///
/// Threads  any thread
class RDMACOMM_API RDMADevice : public detail::SharedHandle<DeviceCore> {
 public:
  using SharedHandle::SharedHandle;

  /// Opens a device. Chooses everything that `options` leave open: hardware with an ACTIVE port before soft0. The
  /// choice is logged at level 1. open_device() of session.h does the same, but considers the route to a peer.
  ///
  /// Returns  kNoDevice: none at all, or none of that name (the context lists the existing names); kNoActivePort: the
  ///          context says for each port why it cannot be used; kInvalidArgument: options.validate(), or a port or GID
  ///          index that the device does not have; or the system's error
  ///
  /// If options.name is empty and no hardware can be used, soft0 is opened, and one warning is logged.
  [[nodiscard]] static Result<RDMADevice> open(const DeviceOptions& options = {});

  /// Its name, for example "mlx5_0" or "soft0".
  [[nodiscard]] const std::string& name() const;
  /// Whether it is soft0, the software device of this library.
  [[nodiscard]] bool is_software() const;
  /// The number of the port that it uses, 1 or more, also if the library has chosen it.
  [[nodiscard]] std::uint8_t port() const;
  /// The wire protocol of its queue pairs.
  [[nodiscard]] Transport transport() const;
  /// The limits and abilities, as they were when it was opened.
  [[nodiscard]] const DeviceLimits& limits() const;
  /// The options that it was opened with.
  [[nodiscard]] const DeviceOptions& options() const;
  /// The current GID table of the port, without its empty entries. Cost: verbs calls.
  [[nodiscard]] std::vector<GidEntry> gids() const;
  /// Whether the port still exists and is active. Cost: a verbs call.
  ///
  /// Returns  kNoActivePort: the port's state now; or the device's error, if the device is gone
  [[nodiscard]] Status check_port() const;
  /// "soft0 port 1 (Ethernet, MTU 4096)", for messages.
  [[nodiscard]] std::string to_text() const;

  // Events ------------------------------------------------------------------------------------------------------
  /// Calls `function` for each event that take_events() takes from now on. The first subscription makes events_fd()
  /// non-blocking.
  ///
  /// function  is called by any thread that calls take_events(), one event at a time. It must not wait, destroy queue
  ///           pairs or completion queues, subscribe, end a subscription, or throw
  /// Returns   kInvalidArgument: an empty function; or the system's error. The context names the device
  [[nodiscard]] Result<DeviceSubscription> subscribe(std::function<void(const DeviceEvent&)> function) const;
  /// Takes the pending events and passes each to all subscribers. Also checks whether the device still exists, because
  /// some drivers do not report its removal. Does not block. Does nothing before the first subscribe(). Cost without an
  /// event: two system calls.
  ///
  /// Sessions call it. Without a session the application must call it when events_fd() is readable, and every few
  /// seconds, too. It must be the only reader, because the verbs hand each event to one reader: applications must not
  /// call ibv_get_async_event() on a device that a session uses. A lost link is logged as a warning; other changes of
  /// ports and GIDs at level 1.
  void take_events() const;
  /// Readable when take_events() has something to do. Use edge-triggered epoll, because several threads may watch it.
  /// The device owns the descriptor.
  [[nodiscard]] int events_fd() const;
  /// ok; kDeviceLost once take_events() has found the device lost.
  [[nodiscard]] Status health() const;

  // Beyond this library -----------------------------------------------------------------------------------------

  /// For verbs calls that this library does not offer. The device owns it.
  [[nodiscard]] ibv_context* native_handle() const;
  /// The protection domain of all objects on this device for which no other domain was given.
  [[nodiscard]] ibv_pd* native_domain() const;
};

/// Decides which queue pairs can reach which memory. Memory and queue pairs of one domain reach each other, and nothing
/// else. A peer that knows the address and the rkey of memory in another domain gets kRemoteAccess. A slice of a buffer
/// in another domain fails with kLocalProtection. Each device has one domain for all objects for which no other domain
/// was given. A server creates a domain for each client that must not reach the memory of other clients, and passes it
/// to HcaConfig::domain and to the buffers for that client. Why and when: docs/adr/0016-protection-domains.md
///
/// A handle: copies share the domain. Queue pairs, buffers and pools that are created in it keep it alive, and it keeps
/// its device open.
///
/// Threads  any thread
class RDMACOMM_API ProtectionDomain : public detail::SharedHandle<ProtectionDomainCore> {
 public:
  using SharedHandle::SharedHandle;

  /// Creates a domain on `device`.
  ///
  /// Returns  the system's error, mostly std::errc::not_enough_memory: devices have a limited number of domains,
  ///          usually many thousands (DeviceLimits::max_protection_domains); the context names it
  [[nodiscard]] static Result<ProtectionDomain> create(const RDMADevice& device);

  /// The device that it was created on.
  [[nodiscard]] RDMADevice device() const;
  /// For verbs calls that this library does not offer. The domain owns it.
  [[nodiscard]] ibv_pd* native_handle() const;
};

}  // namespace rdmacomm
