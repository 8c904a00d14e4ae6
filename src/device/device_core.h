// device_core.h - an opened RDMA device: verbs context, port, protection domain.
// Layer: device. Uses: base, verbs.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "device/addressing.h"
#include "device/device_events.h"
#include "device/host_network.h"
#include "rdmacomm/device.h"
#include "rdmacomm/result.h"
#include "verbs/handles.h"

namespace rdmacomm {

/// The facts about the peers that are known when a device is opened. A value.
struct OpenHints {
  std::optional<PeerRoute> route{};  ///< the route to the peer; empty: no peer is known yet
  ConnectBy connect_by = ConnectBy::kAddresses;
  const HostNetwork* network = &HostNetwork::system();  ///< outlives the device
};

/// Owns the verbs context and one protection domain of a device, and uses one port of it. Completion queues keep their
/// device open, also the shared ones. They belong to a session, because the session owns their threads. A resource:
/// neither copyable nor movable.
/// Threads: all functions from any thread.
/// Lifetime: outlives every buffer, queue and channel made on it.
class DeviceCore : public std::enable_shared_from_this<DeviceCore> {
 public:
  /// Opens the device and the port that choose_address() chooses, and logs the choice (level 1).
  ///
  /// Returns  errors of choose_address(); kInvalidArgument also: a GID index that the device does not have;
  ///          or the system's error for opening a device that was named
  /// If options.name is empty and no hardware can be used, opens soft0 and logs one warning.
  [[nodiscard]] static Result<std::shared_ptr<DeviceCore>> open(const DeviceOptions& options = {},
                                                                const OpenHints& hints = {});
  /// As open(), among the devices of one table: for an application that brings its own Api, and for tests. It never
  /// falls back to soft0.
  ///
  /// api      outlives the device
  [[nodiscard]] static Result<std::shared_ptr<DeviceCore>> open_from(const verbs::Api& api,
                                                                     const DeviceOptions& options = {},
                                                                     const OpenHints& hints = {});

  DeviceCore(const DeviceCore&) = delete;
  DeviceCore& operator=(const DeviceCore&) = delete;
  ~DeviceCore();

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  /// Whether it is soft0, the software device of this library.
  [[nodiscard]] bool is_software() const noexcept;
  [[nodiscard]] std::uint8_t port() const noexcept { return port_; }
  [[nodiscard]] Transport transport() const noexcept { return transport_; }
  /// Whether rdma_cm can connect its queue pairs: true for kernel devices.
  [[nodiscard]] bool known_to_rdma_cm() const noexcept;
  /// Whether its queue pairs can be connected by rdma_cm only: iWARP.
  [[nodiscard]] bool needs_rdma_cm() const noexcept { return transport_ == Transport::kIwarp; }
  [[nodiscard]] std::uint8_t link_layer() const noexcept { return port_attributes_.link_layer; }
  [[nodiscard]] std::uint16_t lid() const noexcept { return port_attributes_.lid; }
  [[nodiscard]] const DeviceLimits& limits() const noexcept { return limits_; }
  /// The options that it was opened with.
  [[nodiscard]] const DeviceOptions& options() const noexcept { return options_; }

  /// The port's current GID table, without its empty entries.
  [[nodiscard]] std::vector<GidEntry> gids() const;
  /// The GIDs to use towards a peer; both peers then agree on one of them. An explicit options.gid_index overrides the
  /// ranking of the free function choose_gids().
  ///
  /// route    empty: not known
  /// Returns  kNoUsableGid: the context lists the table
  [[nodiscard]] Result<GidChoice> choose_gids(const std::optional<PeerRoute>& route = {}) const;
  /// The best of them. local_address: the local address of the TCP connection to the peer; empty: not known.
  [[nodiscard]] Result<GidEntry> choose_gid(const std::optional<Gid>& local_address = {}) const;

  /// The port's current P_Key table, without its empty entries; index and key.
  struct PKey {
    std::uint16_t index = 0;
    std::uint16_t value = 0;
  };
  [[nodiscard]] std::vector<PKey> pkeys() const;
  /// Returns the entry with the partition of `pkey` (its lower 15 bits). If the port is a full and a limited member,
  /// returns the full member's entry.
  /// Errors: kInvalidArgument: the table has no such entry; the context lists the table
  [[nodiscard]] Result<PKey> find_pkey(std::uint16_t pkey) const;

  /// The asynchronous events of the device. An application without a session must subscribe and call take().
  [[nodiscard]] DeviceEvents& events() noexcept { return events_; }

  // For the layers above: direct access to the verbs objects.
  [[nodiscard]] const verbs::Api& api() const noexcept { return api_; }
  [[nodiscard]] ibv_context* context() const noexcept { return context_.get(); }
  [[nodiscard]] ibv_pd* pd() const noexcept { return pd_.get(); }

  /// Whether the port still exists and is active. Cost: a verbs call.
  /// Returns  kNoActivePort: the port's current state; or the device's error (it was removed)
  [[nodiscard]] Status check_port() const;

  /// "soft0 port 1 (Ethernet, MTU 4096)", for messages.
  [[nodiscard]] std::string to_text() const;

 private:
  DeviceCore(const verbs::Api& api, DeviceOptions options, const HostNetwork& network, verbs::ContextHandle context);
  static Result<std::shared_ptr<DeviceCore>> open_among(const std::vector<const verbs::Api*>& apis,
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
  Transport transport_ = Transport::kUnknown;
  std::uint8_t port_ = 0;
  ibv_port_attr port_attributes_{};
  DeviceLimits limits_;
};

}  // namespace rdmacomm
