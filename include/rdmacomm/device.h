// device.h - RDMA devices: which there are, how to open one, and what an open one can do and reports.
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

/// Which kind of GID a connection uses. On InfiniBand there is only kIb.
enum class GidType : std::uint8_t { kIb = 0, kRoceV1 = 1, kRoceV2 = 2 };
[[nodiscard]] RDMACOMM_API std::string to_text(GidType type);  ///< "IB", "RoCE v1", "RoCE v2"

/// Which device and port to open. With all defaults, the library chooses them.
struct RDMACOMM_API DeviceOptions {
  std::string name{};     ///< "mlx5_0", "soft0", ...; empty: the one on the way to the peer, see docs/addressing.md
  std::uint8_t port = 0;  ///< 1..number of ports; 0: chosen among the ACTIVE ones as the device is
  int gid_index = -1;     ///< 0..gid table size - 1; -1: chosen by type and reachability for each peer
  std::optional<GidType> gid_type{};  ///< the only type to consider; empty: RoCE v2 before RoCE v1

  [[nodiscard]] Status validate() const;
};

/// One entry of a port's GID table. A value.
struct RDMACOMM_API GidEntry {
  int index = 0;
  GidType type = GidType::kIb;
  Gid gid{};
  unsigned interface = 0;  ///< index of the network interface that it belongs to; 0: not known

  [[nodiscard]] std::string to_text() const;  ///< "index 3 ::ffff:10.0.0.1 (RoCE v2)"
};

/// What a device's atomics are atomic towards.
enum class AtomicScope : std::uint8_t {
  kNone,    ///< it has none
  kDevice,  ///< other atomics of the same device
  kHost,    ///< whatever else accesses that memory, CPUs too
};

/// Registering memory without pinning it, and what can be done with it over a reliable connection. A value.
struct RDMACOMM_API OnDemandPaging {
  bool supported = false;
  bool implicit = false;  ///< the whole address space at once
  bool send = false;
  bool receive = false;
  bool write = false;
  bool read = false;
  bool atomics = false;
};

/// What the device can do, read from it when it was opened. A value.
struct RDMACOMM_API DeviceLimits {
  int max_qp_wr = 0;                    ///< requests outstanding in one send or receive queue
  int max_sge = 0;                      ///< slices of one request
  int max_sge_rd = 0;                   ///< slices of one READ
  int max_cqe = 0;                      ///< completions in one completion queue
  int max_qp = 0;                       ///< queue pairs
  int max_protection_domains = 0;       ///< of all processes together; 0: it does not say
  int max_srq = 0;                      ///< shared receive queues; 0: it has none
  int max_srq_wr = 0;                   ///< receives in one of them
  int max_read_depth = 0;               ///< READs and atomics outstanding as the responder of one queue pair
  int max_read_depth_initiator = 0;     ///< the same as the initiator
  std::uint64_t max_region_bytes = 0;   ///< one registration
  std::uint32_t max_message_bytes = 0;  ///< one request; from the port
  std::uint32_t mtu_bytes = 0;          ///< the port's active MTU, 256..4096
  /// A send posted in ERR completes as flushed, as the verbs demand. Not so on siw: there the move to ERR itself
  /// empties the queue, and nothing is heard of unsignaled requests.
  bool flushes_in_error = true;
  /// The requests of a send queue complete in the order in which they were posted, as the verbs demand. Not so on siw,
  /// where what follows a READ is complete as soon as it is sent: channels let it wait for the READ (IBV_SEND_FENCE).
  bool completes_in_order = true;
  bool immediate_data = true;  ///< SEND_WITH_IMM and WRITE_WITH_IMM; not on iWARP (RFC 5040 has none)
  bool atomics = false;        ///< post_fetch_add and post_compare_swap
  AtomicScope atomic_scope = AtomicScope::kNone;
  OnDemandPaging on_demand_paging{};
  std::uint8_t max_service_level = 15;  ///< 15 on InfiniBand; 7, VLAN priorities, on Ethernet
};

/// A device that can be opened. A value.
struct RDMACOMM_API DeviceInfo {
  std::string name{};        ///< for DeviceOptions::name: "mlx5_0", "rxe0", "soft0"
  bool is_software = false;  ///< whether it is soft0, the software device of this library
};
/// All devices: first hardware and the kernel's rxe and siw, then soft0. Never empty. Cost: system calls.
[[nodiscard]] RDMACOMM_API std::vector<DeviceInfo> list_devices();

/// What a device reports by itself. Good as long as the call that brings it.
class RDMACOMM_API DeviceEvent {
 public:
  DeviceEvent(const ibv_async_event& event, std::optional<Error> failure) noexcept
      : event_(event), failure_(std::move(failure)) {}

  /// The event as the verbs hand it out. The queue pair or completion queue in it exists while the call lasts. The
  /// removal of the device comes as IBV_EVENT_DEVICE_FATAL, also where the driver reports nothing.
  [[nodiscard]] const ibv_async_event& native_handle() const noexcept { return event_; }
  /// Why the object of the event has failed; empty: it has not.
  ///   kDeviceLost        the device: DEVICE_FATAL
  ///   kLocalQueuePair    a queue pair: QP_FATAL (not on iWARP, where its connection tells), QP_REQ_ERR, QP_ACCESS_ERR;
  ///                      a shared receive queue, and the queue pairs that receive from it: SRQ_ERR
  ///   kCompletionFailed  a completion queue, and the queue pairs on it: CQ_ERR
  [[nodiscard]] const std::optional<Error>& failure() const noexcept { return failure_; }

 private:
  const ibv_async_event& event_;
  std::optional<Error> failure_;
};

/// A function that is called for each event of a device, as long as this exists. Movable. When the destructor or
/// reset() has returned, the function is not running and will not be called again.
class RDMACOMM_API DeviceSubscription {
 public:
  DeviceSubscription() noexcept = default;  ///< none
  DeviceSubscription(DeviceSubscription&&) noexcept = default;
  DeviceSubscription& operator=(DeviceSubscription&&) noexcept = default;
  ~DeviceSubscription() = default;
  void reset() noexcept { state_.reset(); }

 private:
  friend class RDMADevice;
  explicit DeviceSubscription(std::shared_ptr<void> state) noexcept : state_(std::move(state)) {}
  std::shared_ptr<void> state_;
};

/// An open device, and one port of it: the verbs context and a protection domain. A handle: copies share the device. It
/// closes when the last handle is gone, and everything that was made on it.
/// Threads  all functions from any
class RDMACOMM_API RDMADevice : public detail::SharedHandle<DeviceCore> {
 public:
  using SharedHandle::SharedHandle;

  /// Opens a device, and chooses what `options` leave open: hardware with an ACTIVE port before soft0. The choice is
  /// logged at level 1. open_device() of session.h does the same with regard to the route to a peer.
  ///
  /// Returns  kNoDevice: none, or none of that name (the context lists those that there are); kNoActivePort: the
  ///          context says for each port why it cannot be used; kInvalidArgument: options.validate(), or a port or GID
  ///          index that the device does not have; or what the operating system said
  /// When options.name is empty and there is no hardware of use, soft0 is opened, and one warning says so.
  [[nodiscard]] static Result<RDMADevice> open(const DeviceOptions& options = {});

  [[nodiscard]] const std::string& name() const;
  /// Whether it is soft0, the software device of this library.
  [[nodiscard]] bool is_software() const;
  [[nodiscard]] std::uint8_t port() const;
  [[nodiscard]] Transport transport() const;
  [[nodiscard]] const DeviceLimits& limits() const;
  /// What it was opened with.
  [[nodiscard]] const DeviceOptions& options() const;
  /// The port's GID table without its empty entries, as it is now. Cost: verbs calls.
  [[nodiscard]] std::vector<GidEntry> gids() const;
  /// Whether the port is still there and active. Cost: a verbs call.
  /// Returns  kNoActivePort: the port's state now; or what the device said (it is gone)
  [[nodiscard]] Status check_port() const;
  /// "soft0 port 1 (Ethernet, MTU 4096)", for messages.
  [[nodiscard]] std::string to_text() const;

  // What the device reports by itself ---------------------------------------------------------------------------
  // The verbs hand each event to one reader only. So there is one, take_events(), which shows it to every subscriber.
  // An application does not call ibv_get_async_event() on a device that a session uses. Sessions call take_events().
  // Where no session runs, the application does, when events_fd() is readable. Lost links are logged as warnings; other
  // changes of ports and GIDs at level 1.

  /// Has `function` called for each event. The first subscription makes events_fd() non-blocking.
  ///
  /// function  is called by any thread that calls take_events(), one event at a time. It must not wait, destroy queue
  ///           pairs or completion queues, subscribe, end a subscription, or throw
  /// Returns   kInvalidArgument: an empty function; what the system said; the context names the device
  [[nodiscard]] Result<DeviceSubscription> subscribe(std::function<void(const DeviceEvent&)> function) const;
  /// Takes the events that wait, and looks whether the device is still there, which some drivers do not report: so call
  /// it every few seconds, too. Does not block. Does nothing before the first subscribe(). Cost: two system calls where
  /// nothing has happened.
  void take_events() const;
  /// Readable when take_events() has something to do; for edge-triggered epoll, as several may watch it. It stays the
  /// device's.
  [[nodiscard]] int events_fd() const;
  /// ok; kDeviceLost once take_events() has found the device lost.
  [[nodiscard]] Status health() const;

  // For what this library does not do ---------------------------------------------------------------------------

  [[nodiscard]] ibv_context* native_handle() const;
  /// The protection domain of everything on this device that names no other.
  [[nodiscard]] ibv_pd* native_domain() const;
};

/// Which memory can be reached by which queue pairs. Memory and queue pairs of one domain reach each other, and nothing
/// else: a peer that knows the address and the rkey of memory in another domain gets kRemoteAccess, and a slice of
/// another domain's buffer fails with kLocalProtection. Each device has one domain for everything that names no other.
/// A server makes one for each client that must not reach the others' memory, and gives it to HcaConfig::domain and to
/// the buffers for that client. Why and when: docs/adr/0016-protection-domains.md
///
/// A handle: copies share the domain. Queue pairs, buffers and pools that are made in it keep it, and it keeps its
/// device.
/// Threads  all functions from any
class RDMACOMM_API ProtectionDomain : public detail::SharedHandle<ProtectionDomainCore> {
 public:
  using SharedHandle::SharedHandle;

  /// Returns  what the operating system said, mostly std::errc::not_enough_memory: devices have a limited number of
  ///          domains, as a rule many thousands (DeviceLimits::max_protection_domains); the context names it
  [[nodiscard]] static Result<ProtectionDomain> create(const RDMADevice& device);

  [[nodiscard]] RDMADevice device() const;
  [[nodiscard]] ibv_pd* native_handle() const;
};

}  // namespace rdmacomm
