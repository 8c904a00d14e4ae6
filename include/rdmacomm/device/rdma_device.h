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
#include "rdmacomm/device/completion_queue.h"
#include "rdmacomm/verbs/handles.h"

namespace rdmacomm {

/// Which kind of GID a connection uses. On InfiniBand there is only kIb.
enum class GidType : std::uint8_t { kIb = 0, kRoceV1 = 1, kRoceV2 = 2 };

/// Which device and port to open. All defaults: the device is found.
struct DeviceOptions {
  std::string name{};     ///< "mlx5_0", "soft0", ...; empty: first hardware device with an ACTIVE port, else soft0
  std::uint8_t port = 0;  ///< 1..number of ports; 0: the first ACTIVE one
  int gid_index = -1;     ///< 0..gid table size - 1; -1: chosen by type and reachability for each peer
  std::optional<GidType> gid_type{};  ///< the only type to consider; empty: RoCE v2 before RoCE v1

  [[nodiscard]] Status validate() const;
};

/// One entry of the port's GID table.
struct GidEntry {
  int index = 0;
  GidType type = GidType::kIb;
  ibv_gid gid{};
  [[nodiscard]] std::string to_text() const;  ///< "index 3 ::ffff:10.0.0.1 (RoCE v2)"
};

/// What the device can do, read from it when it was opened.
struct DeviceLimits {
  int max_qp_wr = 0;                    ///< requests outstanding in one send or receive queue
  int max_sge = 0;                      ///< slices of one request
  int max_cqe = 0;                      ///< completions in one completion queue
  int max_qp = 0;                       ///< queue pairs
  int max_read_depth = 0;               ///< READs and atomics outstanding as the responder of one queue pair
  int max_read_depth_initiator = 0;     ///< the same as the initiator
  std::uint64_t max_region_bytes = 0;   ///< one registration
  std::uint32_t max_message_bytes = 0;  ///< one request; from the port
  std::uint32_t mtu_bytes = 0;          ///< the port's active MTU, 256..4096
  bool atomics = false;                 ///< fetch_add and compare_swap
};

/// Owns the verbs context, one protection domain and the shared completion queues of a device, and knows one
/// port of it. A resource: neither copyable nor movable.
/// Threads: all functions from any thread.
/// Lifetime: outlives every buffer, queue and channel made on it.
class RDMADevice {
 public:
  /// Opens a device and a port of it.
  ///
  /// Returns  kNoDevice: no device has that name (the context lists those there are);
  ///          kNoActivePort: the port, or every port of the device, is not ACTIVE;
  ///          kInvalidArgument: a port or GID index that the device does not have;
  ///          or what the operating system said on opening
  /// When options.name is empty and there is no hardware, soft0 is opened and one warning says so.
  [[nodiscard]] static Result<std::unique_ptr<RDMADevice>> open(const DeviceOptions& options = {});
  /// The same among the devices of one table: for an application that brings its own Api, and for tests.
  /// With an empty options.name it takes the first device that has an ACTIVE port; it never falls back to soft0.
  ///
  /// api      outlives the device
  [[nodiscard]] static Result<std::unique_ptr<RDMADevice>> open_from(const verbs::Api& api,
                                                                     const DeviceOptions& options = {});

  RDMADevice(const RDMADevice&) = delete;
  RDMADevice& operator=(const RDMADevice&) = delete;
  ~RDMADevice();

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  /// Whether it is soft0, the software device of this library.
  [[nodiscard]] bool is_software() const noexcept;
  [[nodiscard]] std::uint8_t port() const noexcept { return port_; }
  [[nodiscard]] std::uint8_t link_layer() const noexcept { return port_attributes_.link_layer; }
  [[nodiscard]] std::uint16_t lid() const noexcept { return port_attributes_.lid; }
  [[nodiscard]] const DeviceLimits& limits() const noexcept { return limits_; }

  /// The port's GID table without its empty entries, as it is now.
  [[nodiscard]] std::vector<GidEntry> gids() const;
  /// The GID to use towards a peer. An explicit options.gid_index wins; otherwise, among the entries of the
  /// wanted type, the one that equals `local_address` (the address by which TCP reaches the peer; an IPv4
  /// address in its mapped form) wins, then a routable one, then a link-local one, then loopback; among equals RoCE v2 before
  /// v1, IPv4 before IPv6 (both ends of a RoCE v2 connection need the same), the lower index before the higher.
  ///
  /// local_address  empty: not known
  /// Returns  kNoUsableGid: no entry of the wanted type, or the explicit one is empty (the context lists the table)
  [[nodiscard]] Result<GidEntry> choose_gid(const std::optional<ibv_gid>& local_address = {}) const;

  /// The completion queue shared under `key`: made by the first caller with `options`, the same for the later
  /// ones, whose `options.depth` is then without effect. Owned by the device. RDMAAdapter reserves its room in it.
  /// Returns  kWrongState: with_channel asked for, and the queue was made without; or as CompletionQueue::create
  [[nodiscard]] Result<CompletionQueue*> shared_completion_queue(const std::string& key,
                                                                 const CompletionQueueOptions& options);

  // For the layers above: the verbs objects themselves.
  [[nodiscard]] const verbs::Api& api() const noexcept { return api_; }
  [[nodiscard]] ibv_context* context() const noexcept { return context_.get(); }
  [[nodiscard]] ibv_pd* pd() const noexcept { return pd_.get(); }

  /// "soft0 port 1 (Ethernet, MTU 4096)", for messages.
  [[nodiscard]] std::string to_text() const;

 private:
  RDMADevice(const verbs::Api& api, DeviceOptions options, verbs::ContextHandle context, std::string name);
  static Result<std::unique_ptr<RDMADevice>> open_one(const verbs::Api& api, ibv_device* device,
                                                      const DeviceOptions& options);
  Status find_port(int port_count);
  Status read_limits();
  [[nodiscard]] Result<GidEntry> query_gid(int index) const;

  const verbs::Api& api_;
  const DeviceOptions options_;
  verbs::ContextHandle context_;
  verbs::PdHandle pd_;
  std::string name_;
  std::uint8_t port_ = 0;
  ibv_port_attr port_attributes_{};
  DeviceLimits limits_;
  std::mutex shared_queues_mutex_;
  std::map<std::string, std::unique_ptr<CompletionQueue>> shared_queues_;
};

}  // namespace rdmacomm
