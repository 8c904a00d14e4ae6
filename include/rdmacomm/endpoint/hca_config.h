// hca_config.h - what an endpoint is made of: channels, completion queues, threads, published memory.
// Layer: endpoint. Uses: base, memory, adapter, channel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rdmacomm/adapter/adapter_config.h"
#include "rdmacomm/adapter/completion_waiter.h"
#include "rdmacomm/base/result.h"
#include "rdmacomm/memory/rdma_buffer.h"
#include "rdmacomm/memory/remote_region.h"

namespace rdmacomm {

inline constexpr const char* kControlChannel = "control";
inline constexpr const char* kDataChannel = "data";

/// Who polls for completions.
enum class ThreadMode : std::uint8_t {
  kApplication,               ///< the application calls EndPoint::poll() or wait()
  kThreadPerEndPoint,         ///< the session runs one thread for each endpoint, which calls the hooks
  kThreadPerCompletionQueue,  ///< all endpoints of the session with the same shared_queue_key share one completion
                              ///< queue, and one thread, which calls the hooks
};

/// One channel. A value.
struct ChannelConfig {
  std::string name = {};       ///< 1..64 printable characters; the peer's channel of the same name is the other end
  AdapterConfig adapter = {};  ///< the queue pair; the two ends may differ
  /// The channel gets a completion queue for itself, which nobody polls but the application, by RDMAChannel::poll():
  /// the shortest way there is. EndPoint::poll(), wait() and the hooks then do not see its completions.
  bool own_completion_queue = false;
};

/// A region of this side's memory that the peer is told of, by name. A value.
struct PublishedRegion {
  std::string name = {};  ///< 1..64 printable characters
  RemoteRegion region = {};
};

/// What lazy_config_hca() chooses for one endpoint. A value.
struct HcaConfig {
  static constexpr std::size_t kMaxChannels = 16;
  static constexpr std::size_t kMaxRegions = 1024;
  static constexpr std::size_t kMaxNameBytes = 64;
  static constexpr std::size_t kMaxPrivateDataBytes = std::size_t{64} << 10;

  std::vector<ChannelConfig> channels = {{.name = kControlChannel}, {.name = kDataChannel}};  ///< 1..kMaxChannels
  PollingMode polling_mode = PollingMode::kBusyPoll;  ///< how wait() and the session's threads wait
  ThreadMode thread_mode = ThreadMode::kApplication;
  std::string shared_queue_key = {};  ///< kThreadPerCompletionQueue: which queue; else not looked at
  /// kThreadPerCompletionQueue: requests of all endpoints together that the queue has room for; the first endpoint of
  /// a key decides. 1..device limit; empty: 4096, or as many as the device has.
  std::optional<int> shared_queue_depth{};
  std::vector<PublishedRegion> published = {};  ///< at most kMaxRegions, names unique
  std::vector<std::byte> private_data = {};     ///< for the peer's application; at most kMaxPrivateDataBytes

  /// The channel of that name, to change it; nullptr: there is none.
  [[nodiscard]] ChannelConfig* channel(std::string_view name) noexcept;
  /// Publishes a buffer under its name. The peer may do there what the buffer's RemoteAccess grants. The buffer must
  /// live as long as the peer may use it.
  void publish(const RDMABuffer& buffer);

  /// kInvalidArgument, kBeyondDeviceLimit: the context names the field, the value and the bound.
  [[nodiscard]] Status validate(const DeviceLimits& limits) const;
  /// The same with a value for all that was left empty, as AdapterConfig::fitted.
  [[nodiscard]] HcaConfig fitted(const DeviceLimits& limits) const;
  /// The completions that can be outstanding on all channels without a completion queue of their own. Of a fitted()
  /// configuration: what is left empty does not count.
  [[nodiscard]] int queue_depth() const noexcept;
};

/// ok, or kInvalidArgument with the reason: names are 1..HcaConfig::kMaxNameBytes printable ASCII characters.
[[nodiscard]] Status check_name(std::string_view what, std::string_view name);

}  // namespace rdmacomm
