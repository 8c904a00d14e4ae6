// rdma_device.h - an opened RDMA device: verbs context, port, protection domain, shared completion queues.
// Layer: device. Uses: base, verbs, softdev.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "rdmacomm/base/result.h"
#include "rdmacomm/device/addressing.h"
#include "rdmacomm/device/completion_queue.h"
#include "rdmacomm/device/device_events.h"
#include "rdmacomm/device/host_network.h"
#include "rdmacomm/verbs/handles.h"

namespace rdmacomm {

/// What is known of the peers when a device is opened. A value.
struct OpenHints {
  std::optional<PeerRoute> route{};  ///< the way to the peer; empty: no peer is known yet
  ConnectBy connect_by = ConnectBy::kAddresses;
  const HostNetwork* network = &HostNetwork::system();  ///< outlives the device
};

/// What a device's atomics are atomic towards.
enum class AtomicScope : std::uint8_t {
  kNone,    ///< it has none
  kDevice,  ///< other atomics of the same device
  kHost,    ///< whatever else accesses that memory, CPUs too
};

/// Registering memory without pinning it, and what can be done with it over a reliable connection. A value.
struct OnDemandPaging {
  bool supported = false;
  bool implicit = false;  ///< the whole address space at once
  bool send = false;
  bool receive = false;
  bool write = false;
  bool read = false;
  bool atomics = false;
};

/// What the device can do, read from it when it was opened.
struct DeviceLimits {
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
  /// A send posted in ERR completes as flushed, as the verbs demand. Not so on siw: there the move to ERR itself empties
  /// the queue, and nothing is heard of unsignaled requests.
  bool flushes_in_error = true;
  /// The requests of a send queue complete in the order in which they were posted, as the verbs demand. Not so on siw, where
  /// what follows a READ is complete as soon as it is sent: channels let it wait for the READ (IBV_SEND_FENCE).
  bool completes_in_order = true;
  bool immediate_data = true;  ///< SEND_WITH_IMM and WRITE_WITH_IMM; not on iWARP (RFC 5040 has none)
  bool atomics = false;        ///< fetch_add and compare_swap
  AtomicScope atomic_scope = AtomicScope::kNone;
  OnDemandPaging on_demand_paging{};
  std::uint8_t max_service_level = 15;  ///< 15 on InfiniBand; 7, VLAN priorities, on Ethernet
};

/// Owns the verbs context, one protection domain and the shared completion queues of a device, and knows one
/// port of it. A resource: neither copyable nor movable.
/// Threads: all functions from any thread.
/// Lifetime: outlives every buffer, queue and channel made on it.
class RDMADevice {
 public:
  /// Opens the device and the port that choose_address() chooses, and logs the choice (level 1).
  ///
  /// Returns  as choose_address(); kInvalidArgument also: a GID index that the device does not have;
  ///          or what the operating system said on opening a device that was named
  /// When options.name is empty and there is no hardware of use, soft0 is opened and one warning says so.
  [[nodiscard]] static Result<std::unique_ptr<RDMADevice>> open(const DeviceOptions& options = {},
                                                                const OpenHints& hints = {});
  /// The same among the devices of one table: for an application that brings its own Api, and for tests. It never falls
  /// back to soft0.
  ///
  /// api      outlives the device
  [[nodiscard]] static Result<std::unique_ptr<RDMADevice>> open_from(const verbs::Api& api,
                                                                     const DeviceOptions& options = {},
                                                                     const OpenHints& hints = {});

  RDMADevice(const RDMADevice&) = delete;
  RDMADevice& operator=(const RDMADevice&) = delete;
  ~RDMADevice();

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  /// Whether it is soft0, the software device of this library.
  [[nodiscard]] bool is_software() const noexcept;
  [[nodiscard]] std::uint8_t port() const noexcept { return port_; }
  [[nodiscard]] verbs::Transport transport() const noexcept { return transport_; }
  /// Whether rdma_cm can connect its queue pairs: devices of the kernel's.
  [[nodiscard]] bool known_to_rdma_cm() const noexcept;
  /// Whether nothing but rdma_cm can: iWARP.
  [[nodiscard]] bool needs_rdma_cm() const noexcept { return transport_ == verbs::Transport::kIwarp; }
  [[nodiscard]] std::uint8_t link_layer() const noexcept { return port_attributes_.link_layer; }
  [[nodiscard]] std::uint16_t lid() const noexcept { return port_attributes_.lid; }
  [[nodiscard]] const DeviceLimits& limits() const noexcept { return limits_; }
  /// What it was opened with.
  [[nodiscard]] const DeviceOptions& options() const noexcept { return options_; }

  /// The port's GID table without its empty entries, as it is now.
  [[nodiscard]] std::vector<GidEntry> gids() const;
  /// The GIDs to use towards a peer, of which both sides then agree on one. An explicit options.gid_index wins;
  /// otherwise as the function choose_gids() ranks them.
  ///
  /// route    empty: not known
  /// Returns  kNoUsableGid: the context lists the table
  [[nodiscard]] Result<GidChoice> choose_gids(const std::optional<PeerRoute>& route = {}) const;
  /// The best of them. local_address: the address by which TCP reaches the peer; empty: not known.
  [[nodiscard]] Result<GidEntry> choose_gid(const std::optional<ibv_gid>& local_address = {}) const;

  /// The port's P_Key table without its empty entries, as it is now; index and key.
  struct PKey {
    std::uint16_t index = 0;
    std::uint16_t value = 0;
  };
  [[nodiscard]] std::vector<PKey> pkeys() const;
  /// Where the table has the partition of `pkey` (its lower 15 bits); as a full member, where it is both.
  /// Returns  kInvalidArgument: it has not; the context lists the table
  [[nodiscard]] Result<PKey> find_pkey(std::uint16_t pkey) const;

  /// The completion queue shared under `key`: made by the first caller with `options`, the same for the later
  /// ones, whose `options.depth` is then without effect. Owned by the device. RDMAAdapter reserves its room in it.
  /// Returns  kWrongState: with_channel asked for, and the queue was made without; or as CompletionQueue::create
  [[nodiscard]] Result<CompletionQueue*> shared_completion_queue(const std::string& key,
                                                                 const CompletionQueueOptions& options);

  /// What the device reports by itself. Who uses it without a session, and wants to know, subscribes and calls take().
  [[nodiscard]] DeviceEvents& events() noexcept { return events_; }

  // For the layers above: the verbs objects themselves.
  [[nodiscard]] const verbs::Api& api() const noexcept { return api_; }
  [[nodiscard]] ibv_context* context() const noexcept { return context_.get(); }
  [[nodiscard]] ibv_pd* pd() const noexcept { return pd_.get(); }

  /// Whether the port is still there and active. Cost: a verbs call.
  /// Returns  kNoActivePort: the port's state now; or what the device said (it is gone)
  [[nodiscard]] Status check_port() const;

  /// "soft0 port 1 (Ethernet, MTU 4096)", for messages.
  [[nodiscard]] std::string to_text() const;

 private:
  RDMADevice(const verbs::Api& api, DeviceOptions options, const HostNetwork& network, verbs::ContextHandle context);
  static Result<std::unique_ptr<RDMADevice>> open_among(const std::vector<const verbs::Api*>& apis,
                                                        const DeviceOptions& options, const OpenHints& hints);
  Status set_up(std::uint8_t port);
  Status read_limits();
  [[nodiscard]] PortFacts port_facts() const;

  const verbs::Api& api_;
  const DeviceOptions options_;
  const HostNetwork& network_;
  verbs::ContextHandle context_;
  DeviceEvents events_;
  verbs::PdHandle pd_;
  std::string name_;
  verbs::Transport transport_ = verbs::Transport::kUnknown;
  std::uint8_t port_ = 0;
  ibv_port_attr port_attributes_{};
  DeviceLimits limits_;
  std::mutex shared_queues_mutex_;
  std::map<std::string, std::unique_ptr<CompletionQueue>> shared_queues_;
};

}  // namespace rdmacomm
