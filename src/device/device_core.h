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

/// What is known of the peers when a device is opened. A value.
struct OpenHints {
  std::optional<PeerRoute> route{};  ///< the way to the peer; empty: no peer is known yet
  ConnectBy connect_by = ConnectBy::kAddresses;
  const HostNetwork* network = &HostNetwork::system();  ///< outlives the device
};

/// Owns the verbs context and one protection domain of a device, and knows one port of it. The completion queues on it, also
/// those that endpoints share, keep it open; a session has them, since it has their threads. A resource: neither copyable nor
/// movable.
/// Threads: all functions from any thread.
/// Lifetime: outlives every buffer, queue and channel made on it.
class DeviceCore : public std::enable_shared_from_this<DeviceCore> {
 public:
  /// Opens the device and the port that choose_address() chooses, and logs the choice (level 1).
  ///
  /// Returns  as choose_address(); kInvalidArgument also: a GID index that the device does not have;
  ///          or what the operating system said on opening a device that was named
  /// When options.name is empty and there is no hardware of use, soft0 is opened and one warning says so.
  [[nodiscard]] static Result<std::shared_ptr<DeviceCore>> open(const DeviceOptions& options = {},
                                                                const OpenHints& hints = {});
  /// The same among the devices of one table: for an application that brings its own Api, and for tests. It never falls
  /// back to soft0.
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
  /// Whether rdma_cm can connect its queue pairs: devices of the kernel's.
  [[nodiscard]] bool known_to_rdma_cm() const noexcept;
  /// Whether nothing but rdma_cm can: iWARP.
  [[nodiscard]] bool needs_rdma_cm() const noexcept { return transport_ == Transport::kIwarp; }
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
  [[nodiscard]] Result<GidEntry> choose_gid(const std::optional<Gid>& local_address = {}) const;

  /// The port's P_Key table without its empty entries, as it is now; index and key.
  struct PKey {
    std::uint16_t index = 0;
    std::uint16_t value = 0;
  };
  [[nodiscard]] std::vector<PKey> pkeys() const;
  /// Where the table has the partition of `pkey` (its lower 15 bits); as a full member, where it is both.
  /// Returns  kInvalidArgument: it has not; the context lists the table
  [[nodiscard]] Result<PKey> find_pkey(std::uint16_t pkey) const;

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
