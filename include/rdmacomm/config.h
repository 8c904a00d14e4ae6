// config.h - what an endpoint is made of: channels, completion queues, threads, published memory.
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

inline constexpr const char* kControlChannel = "control";
inline constexpr const char* kDataChannel = "data";

/// Which thread polls for completions.
enum class ThreadMode : std::uint8_t {
  kApplication,               ///< the application calls EndPoint::poll() or wait()
  kThreadPerChannel,          ///< the session runs one thread for each channel, thus queue pair, which calls its hooks
  kThreadPerEndPoint,         ///< the session runs one thread for each endpoint, which calls the hooks
  kThreadPerCompletionQueue,  ///< all endpoints of the session with the same shared_queue_key share one completion
                              ///< queue, and one thread, which calls the hooks
};

/// The threads that a session polls with. A value.
struct RDMACOMM_API ThreadOptions {
  static constexpr std::size_t kMaxNameBytes = 10;

  /// 1..kMaxNameBytes printable characters, which `top -H` and debuggers show, followed by a number: "rdma-cq-3".
  std::string name = "rdma-cq";
  /// The CPUs to run on, one for each thread: the one that the fewest such threads of this process have, of all its
  /// sessions and keys. Empty: any. A thread that spins should have one for itself.
  std::vector<int> cpus = {};

  /// kInvalidArgument: the name, or a CPU that is negative. Whether this process may use a CPU, the system says when
  /// the thread is started.
  [[nodiscard]] Status validate() const;
};

/// One channel. A value.
struct RDMACOMM_API ChannelConfig {
  std::string name = {};       ///< 1..64 printable characters; the peer's channel of the same name is the other end
  AdapterConfig adapter = {};  ///< the queue pair; the two ends may differ
  /// The channel has its own completion queue, which only the application polls: by RDMAChannel::poll() (fastest), or
  /// by the EndPoint::wait() that names the channel. So several threads of the application can wait, each on its
  /// channel. EndPoint::poll(), the other wait() and the hooks do not see its completions.
  bool own_completion_queue = false;
  /// The channel takes its receives from the pool of HcaConfig::receive_pool_key, with the channels of other endpoints,
  /// instead of post_recv().
  bool pooled_receives = false;
  /// Another device, or port, than the endpoint's, for the channel's queue pair; empty: that one. Buffers for the
  /// channel are made on it. It has a completion queue for itself, which is polled as with own_completion_queue in
  /// ThreadMode::kApplication, and by a thread of its own in the others. The peer's channel of the same name has one,
  /// too. What that device reports by itself is the application's to take (RDMADevice::take_events()). Not with
  /// pooled_receives, nor where rdma_cm connects.
  RDMADevice device = {};

  /// The completions that can be outstanding of a fitted one; `pool` where it has pooled_receives.
  [[nodiscard]] int queue_depth(const ReceivePoolOptions& pool) const noexcept;
};

/// A region of this side's memory that the peer is told of, by name. A value.
struct RDMACOMM_API PublishedRegion {
  std::string name = {};  ///< 1..64 printable characters
  RemoteRegion region = {};
  // Where it is registered, as publish() knows it. These stay on this side.
  RDMADevice device = {};        ///< empty: not known
  ProtectionDomain domain = {};  ///< empty: the device's own
};

/// What lazy_config_hca() chooses for one endpoint. A value.
struct RDMACOMM_API HcaConfig {
  static constexpr std::size_t kMaxChannels = 64;
  static constexpr std::size_t kMaxRegions = 1024;
  static constexpr int kMaxSharedQueues = 256;
  static constexpr std::size_t kMaxNameBytes = 64;
  static constexpr std::size_t kMaxPrivateDataBytes = std::size_t{64} << 10;

  std::vector<ChannelConfig> channels = {{.name = kControlChannel}, {.name = kDataChannel}};  ///< 1..kMaxChannels
  PollingMode polling_mode = PollingMode::kBusyPoll;  ///< how wait() and the session's threads wait
  WaitOptions waiting = {};                           ///< the finer points of it
  ThreadMode thread_mode = ThreadMode::kApplication;
  ThreadOptions threads = {};  ///< but in kApplication; of a shared queue the first endpoint of a key decides
  /// kThreadPerCompletionQueue: which queue: all endpoints of a session with this key share one. 1..kMaxNameBytes
  /// printable characters. Not looked at in the other modes.
  std::string shared_queue_key = "shared";
  /// kThreadPerCompletionQueue: over how many queues, each with its thread, the endpoints of the key are spread. Each
  /// is made when an endpoint needs it, which then goes to the one with the fewest. 1..kMaxSharedQueues; the same for
  /// all endpoints of a key.
  int shared_queues = 1;
  /// kThreadPerCompletionQueue: requests of all its endpoints together that each queue has room for; the first endpoint
  /// of a key decides. 1..device limit; empty: 4096, or as many as the device has, and more when they are needed, as
  /// far as the device goes.
  std::optional<int> shared_queue_depth{};
  /// Which pool the channels with pooled_receives take their receives from: all endpoints of a session with this key
  /// share one. 1..kMaxNameBytes printable characters; empty: there is none, and no channel may ask for one.
  std::string receive_pool_key = {};
  ReceivePoolOptions receive_pool = {};  ///< the same for all endpoints of a key
  /// The protection domain of the endpoint, on the session's device: its peer reaches memory in this domain and nothing
  /// else. Empty: the device's own, which all endpoints without a domain share: each of their peers can then reach
  /// whatever is registered there with a RemoteAccess, also what was published to others, if it knows or guesses
  /// address and rkey. All buffers and pools for the endpoint are made in its domain. Not with pooled_receives, whose
  /// pool serves several endpoints, nor with channels on devices of their own, which cannot be in it.
  ProtectionDomain domain = {};
  std::vector<PublishedRegion> published = {};  ///< at most kMaxRegions, names unique
  std::vector<std::byte> private_data = {};     ///< for the peer's application; at most kMaxPrivateDataBytes

  /// The channel of that name, to change it. If there is none, the program has a bug, and ends with one line.
  [[nodiscard]] ChannelConfig& channel(std::string_view name);
  /// The same; nullptr: there is none.
  [[nodiscard]] ChannelConfig* find_channel(std::string_view name) noexcept;
  /// Publishes a buffer under its name; an empty one is a mistake of the program, and ends it. The peer may do there
  /// what the buffer's RemoteAccess grants. The buffer must live as long as the peer may use it, and be in the
  /// endpoint's domain.
  void publish(const RDMABuffer& buffer);

  /// kInvalidArgument, kBeyondDeviceLimit: the context names the field, the value and the bound. kNotSupported:
  /// pooled_receives on a device without shared receive queues.
  [[nodiscard]] Status validate(const DeviceLimits& limits) const;
  /// The same with a value for all that was left empty, as AdapterConfig::fitted.
  [[nodiscard]] HcaConfig fitted(const DeviceLimits& limits) const;
  /// The completions that can be outstanding on all channels without a completion queue of their own; all receives of
  /// their pool, once. Of a fitted() configuration: what is left empty does not count.
  [[nodiscard]] int queue_depth() const noexcept;
};

}  // namespace rdmacomm
