// config.h - the configuration of an endpoint: channels, completion queues, threads, published memory.
// Layer: endpoint. Uses: base, device, memory, adapter, channel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rdmacomm/adapter.h"
#include "rdmacomm/buffer.h"
#include "rdmacomm/device.h"
#include "rdmacomm/polling.h"
#include "rdmacomm/receive_pool.h"
#include "rdmacomm/remote_region.h"
#include "rdmacomm/result.h"

namespace rdmacomm {

/// The name of the first of the two channels that an endpoint has by default.
inline constexpr const char* kControlChannel = "control";
/// The name of the second one. EndPoint::channel() returns the channel of this name if it is called without a name.
inline constexpr const char* kDataChannel = "data";

/// Which thread polls for completions.
enum class ThreadMode : std::uint8_t {
  kApplication,               ///< the application calls EndPoint::poll() or wait()
  kThreadPerChannel,          ///< the session runs one thread for each channel (queue pair); it calls the hooks
  kThreadPerEndPoint,         ///< the session runs one thread for each endpoint; it calls the hooks
  kThreadPerCompletionQueue,  ///< all endpoints of the session with the same shared_queue_key share one completion
                              ///< queue, and one thread, which calls the hooks
};

/// Options of the threads with which a session polls. A value.
struct RDMACOMM_API ThreadOptions {
  /// Maximum length of `name`, in bytes. The system limits the names of threads, and a number follows `name`.
  static constexpr std::size_t kMaxNameBytes = 10;

  /// 1..kMaxNameBytes printable ASCII characters. `top -H` and debuggers show them, followed by a number: "rdma-cq-3".
  std::string name = "rdma-cq";
  /// The CPUs to run on, one for each thread. A thread gets the CPU with the fewest such threads of this process,
  /// counting all its sessions and keys. Empty: any CPU. A thread that spins should have a CPU for itself.
  std::vector<int> cpus = {};

  /// Checks the name and the CPUs. Whether this process may use a CPU is known only when the thread starts.
  ///
  /// Returns  kInvalidArgument: the name, or a CPU that is negative
  [[nodiscard]] Status validate() const;
};

/// One channel. A value.
struct RDMACOMM_API ChannelConfig {
  std::string name = {};       ///< 1..64 printable ASCII characters; connects to the peer's channel of the same name
  AdapterConfig adapter = {};  ///< the queue pair; the two ends may differ
  /// The channel has its own completion queue, which only the application polls: with RDMAChannel::poll() (fastest), or
  /// with the EndPoint::wait() that takes a channel. Several threads of the application can then wait, each on its
  /// channel. EndPoint::poll(), the other wait() and the hooks do not see the completions of this channel.
  bool own_completion_queue = false;
  /// The channel takes its receives from the pool of HcaConfig::receive_pool_key, which channels of other endpoints use
  /// too. post_recv() is then not possible.
  bool pooled_receives = false;
  /// Another device or port for the channel's queue pair; empty: the endpoint's device. Register the buffers for the
  /// channel on it. The channel has its own completion queue. In ThreadMode::kApplication the application polls it, as
  /// with own_completion_queue; in the other modes a thread of its own does. The peer's channel of the same name must
  /// have a device, too. The application takes the events of that device (RDMADevice::take_events()). Not with
  /// pooled_receives, and not if rdma_cm connects.
  RDMADevice device = {};

  /// The number of completions that can be outstanding. Only for a fitted configuration. `pool` counts if
  /// pooled_receives.
  [[nodiscard]] int queue_depth(const ReceivePoolOptions& pool) const noexcept;
};

/// A region of local memory that the peer can look up by name. A value.
struct RDMACOMM_API PublishedRegion {
  std::string name = {};     ///< 1..64 printable ASCII characters; the peer passes it to EndPoint::remote_region()
  RemoteRegion region = {};  ///< sent to the peer with the name
  // HcaConfig::publish() fills in the device and the domain of the registration.
  RDMADevice device = {};        ///< of the registration, not sent to the peer; empty: not known
  ProtectionDomain domain = {};  ///< of the registration, not sent to the peer; empty: the device's own
};

/// The configuration of one endpoint, which lazy_config_hca() fills in. A value.
struct RDMACOMM_API HcaConfig {
  static constexpr std::size_t kMaxChannels = 64;   ///< maximum number of `channels`
  static constexpr std::size_t kMaxRegions = 1024;  ///< maximum number of `published` regions
  static constexpr int kMaxSharedQueues = 256;      ///< maximum of `shared_queues`
  /// Maximum length of the names of channels and regions, and of the keys of queues and pools, in bytes.
  static constexpr std::size_t kMaxNameBytes = 64;
  /// Maximum size of `private_data`: 64 KiB.
  static constexpr std::size_t kMaxPrivateDataBytes = std::size_t{64} << 10;

  std::vector<ChannelConfig> channels = {{.name = kControlChannel}, {.name = kDataChannel}};  ///< 1..kMaxChannels
  PollingMode polling_mode = PollingMode::kBusyPoll;  ///< how wait() and the session's threads wait
  WaitOptions waiting = {};                           ///< how long to spin, and how often to yield
  ThreadMode thread_mode = ThreadMode::kApplication;  ///< which thread polls for completions
  ThreadOptions threads = {};  ///< not used in kApplication; for a shared queue, the first endpoint of its key decides
  /// kThreadPerCompletionQueue: the key of the queue. All endpoints of a session with the same key share one queue.
  /// 1..kMaxNameBytes printable ASCII characters. Ignored in the other modes.
  std::string shared_queue_key = "shared";
  /// kThreadPerCompletionQueue: the number of queues, each with its own thread, for the endpoints of the key. A queue
  /// is created when an endpoint needs it. Each endpoint uses the queue with the fewest endpoints.
  /// 1..kMaxSharedQueues; the same for all endpoints of a key.
  int shared_queues = 1;
  /// kThreadPerCompletionQueue: the number of requests, of all its endpoints together, that each queue has room for.
  /// The first endpoint of a key decides. 1..device limit; empty: 4096, or the device's limit if smaller; the queue
  /// then grows, up to the device's limit, when its endpoints need more.
  std::optional<int> shared_queue_depth{};
  /// The pool of the channels with pooled_receives. All endpoints of a session with the same key share one pool.
  /// 1..kMaxNameBytes printable ASCII characters; empty: no pool, and pooled_receives is not possible.
  std::string receive_pool_key = {};
  ReceivePoolOptions receive_pool = {};  ///< the options of that pool; the same for all endpoints of a key
  /// The protection domain of the endpoint, on the session's device. The peer reaches memory in this domain and no
  /// other memory. Empty: the device's own domain, which all endpoints without a domain share. Each of their peers can
  /// then reach all memory that is registered there with a RemoteAccess, also regions that were published to other
  /// peers. It only needs to know or guess the address and the rkey. All buffers and pools for the endpoint must be
  /// created in its domain. Not with pooled_receives, because that pool serves several endpoints, and not with channels
  /// that have another device.
  ProtectionDomain domain = {};
  std::vector<PublishedRegion> published = {};  ///< at most kMaxRegions, names unique
  std::vector<std::byte> private_data = {};     ///< for the peer's application; at most kMaxPrivateDataBytes

  /// The channel of that name, for changes. A name that no channel has is a bug in the program and ends it.
  [[nodiscard]] ChannelConfig& channel(std::string_view name);
  /// The channel of that name, for changes; nullptr: no channel has that name.
  [[nodiscard]] ChannelConfig* find_channel(std::string_view name) noexcept;
  /// Publishes a buffer under its name. The buffer's RemoteAccess says which operations the peer may do. The buffer
  /// must live as long as the peer may use it, and must be in the endpoint's domain. An empty buffer is a bug in the
  /// program and ends it.
  void publish(const RDMABuffer& buffer);

  /// Checks the ranges above, also those of the channels. Sessions call it after lazy_config_hca().
  ///
  /// limits   those of the device that the endpoint uses
  /// Returns  kInvalidArgument, kBeyondDeviceLimit: the context names the field, the value and the bound;
  ///          kNotSupported: pooled_receives on a device without shared receive queues
  [[nodiscard]] Status validate(const DeviceLimits& limits) const;
  /// The same configuration with a value for each empty field, as AdapterConfig::fitted().
  [[nodiscard]] HcaConfig fitted(const DeviceLimits& limits) const;
  /// The completions that can be outstanding on all channels that share the endpoint's completion queue. All receives
  /// of their pool count once. Call it on a fitted() configuration, because empty fields do not count.
  [[nodiscard]] int queue_depth() const noexcept;
};

}  // namespace rdmacomm
