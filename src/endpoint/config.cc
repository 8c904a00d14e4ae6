#include "rdmacomm/config.h"

#include <algorithm>
#include <set>

#include "base/check_name.h"
#include "base/check_range.h"

namespace rdmacomm {
namespace {

Error too_many(const char* what, std::size_t count, std::size_t most) {
  return make_error(Errc::kInvalidArgument, "the endpoint has " + std::to_string(count) + " " + what + "; at most " +
                                                std::to_string(most) + " are allowed");
}

template <typename Named>
Status check_names(std::string_view what, const std::vector<Named>& list) {
  std::set<std::string_view> seen;
  for (const Named& each : list) {
    if (Status status = check_name(what, each.name); !status) return status;
    if (!seen.insert(each.name).second) {
      return make_error(Errc::kInvalidArgument, "two " + std::string(what) + "s have the name '" + each.name + "'");
    }
  }
  return {};
}

Status check_channel(const ChannelConfig& channel, const DeviceLimits& limits) {
  const auto about = [&](const std::string& why) { return "channel '" + channel.name + "': " + why; };
  const Status status = channel.adapter.validate(channel.device ? channel.device.limits() : limits);
  if (!status) return make_error(status.code(), about(status.error().context));
  if (!channel.device || !channel.pooled_receives) return {};
  return make_error(Errc::kInvalidArgument,
                    about("it has its own device, but the receives of a pool are on the endpoint's device: set "
                          "pooled_receives to false"));
}

Status check_shared_queues(const HcaConfig& config, const DeviceLimits& limits) {
  if (config.thread_mode != ThreadMode::kThreadPerCompletionQueue) return {};
  if (Status status = check_name("shared queue, HcaConfig::shared_queue_key,", config.shared_queue_key); !status)
    return status;
  const Status count =
      check_range("shared_queues", config.shared_queues, {.low = 1, .high = HcaConfig::kMaxSharedQueues});
  if (!count || !config.shared_queue_depth) return count;
  return check_range("shared_queue_depth", *config.shared_queue_depth,
                     {.low = 1, .high = limits.max_cqe, .high_of_device = true});
}

Status check_receive_pool(const HcaConfig& config, const DeviceLimits& limits) {
  const auto pooled = std::ranges::find(config.channels, true, &ChannelConfig::pooled_receives);
  if (pooled == config.channels.end() && config.receive_pool_key.empty()) return {};
  if (pooled == config.channels.end()) {
    return make_error(
        Errc::kInvalidArgument,
        "receive_pool_key is '" + config.receive_pool_key +
            "', but no channel has pooled_receives: set pooled_receives on a channel, or leave the key empty");
  }
  if (config.receive_pool_key.empty()) {
    return make_error(Errc::kInvalidArgument,
                      "channel '" + pooled->name +
                          "' has pooled_receives, but receive_pool_key is empty: set it to the name of a pool");
  }
  if (Status status = check_name("receive pool", config.receive_pool_key); !status) return status;
  Status status = config.receive_pool.validate(limits);
  if (!status)
    return make_error(status.code(), "receive pool '" + config.receive_pool_key + "': " + status.error().context);
  return {};
}

Status check_domain(const HcaConfig& config) {
  if (!config.domain) return {};
  for (const ChannelConfig& each : config.channels) {
    const char* const why = each.pooled_receives
                                ? "pooled_receives, but a receive pool serves endpoints of several protection domains"
                            : each.device ? "its own device, but HcaConfig::domain is on another device"
                                          : nullptr;
    if (why == nullptr) continue;
    return make_error(Errc::kInvalidArgument, "channel '" + each.name + "' has " + why +
                                                  ": remove that setting, or leave HcaConfig::domain empty");
  }
  return {};
}

}  // namespace

ChannelConfig& HcaConfig::channel(std::string_view name) {
  if (ChannelConfig* const found = find_channel(name)) return *found;
  std::string there;
  for (const ChannelConfig& each : channels) there += (there.empty() ? "" : ", ") + each.name;
  const std::string what =
      "HcaConfig::channel(): no channel has the name '" + std::string(name) + "'; the channels are: " + there;
  detail::die_of_misuse(what.c_str(), nullptr);
}

ChannelConfig* HcaConfig::find_channel(std::string_view name) noexcept {
  const auto found = std::ranges::find(channels, name, &ChannelConfig::name);
  return found == channels.end() ? nullptr : &*found;
}

static_assert(HcaConfig::kMaxNameBytes == kMaxNameBytes);

void HcaConfig::publish(const RDMABuffer& buffer) {
  if (!buffer)
    detail::die_of_misuse(
        "an empty RDMABuffer was published; check whether the call that should have created it failed", nullptr);
  published.push_back(
      {.name = buffer.name(), .region = buffer.remote_region(), .device = buffer.device(), .domain = buffer.domain()});
}

Status ThreadOptions::validate() const {
  if (Status status = check_name("thread", name); !status) return status;
  if (name.size() > kMaxNameBytes) {
    return make_error(Errc::kInvalidArgument, "threads.name '" + name + "' has " + std::to_string(name.size()) +
                                                  " bytes; it must have at most " + std::to_string(kMaxNameBytes) +
                                                  ", because the system shows only those and a number");
  }
  const auto negative = std::ranges::find_if(cpus, [](int cpu) { return cpu < 0; });
  if (negative == cpus.end()) return {};
  return make_error(Errc::kInvalidArgument,
                    "threads.cpus has " + std::to_string(*negative) + ", which is not a CPU number");
}

Status HcaConfig::validate(const DeviceLimits& limits) const {
  if (channels.empty()) return make_error(Errc::kInvalidArgument, "an endpoint needs at least one channel");
  if (channels.size() > kMaxChannels) return too_many("channels", channels.size(), kMaxChannels);
  if (published.size() > kMaxRegions) return too_many("published regions", published.size(), kMaxRegions);
  if (private_data.size() > kMaxPrivateDataBytes) {
    return too_many("bytes of private data", private_data.size(), kMaxPrivateDataBytes);
  }
  if (Status status = waiting.validate(); !status) return status;
  if (Status status = check_names("channel", channels); !status) return status;
  if (Status status = check_names("published region", published); !status) return status;
  for (const ChannelConfig& each : channels) {
    if (Status status = check_channel(each, limits); !status) return status;
  }
  if (Status status = check_receive_pool(*this, limits); !status) return status;
  if (Status status = check_domain(*this); !status) return status;
  const int queued = fitted(limits).queue_depth();
  if (queued > limits.max_cqe) {
    return make_error(Errc::kBeyondDeviceLimit, "the channels' depths add up to " + std::to_string(queued) +
                                                    " completions; a completion queue of the device holds at most " +
                                                    std::to_string(limits.max_cqe));
  }
  if (Status status = threads.validate(); !status) return status;
  return check_shared_queues(*this, limits);
}

HcaConfig HcaConfig::fitted(const DeviceLimits& limits) const {
  HcaConfig fitted = *this;
  for (ChannelConfig& each : fitted.channels) {
    each.adapter = each.adapter.fitted(each.device ? each.device.limits() : limits);
  }
  return fitted;
}

int ChannelConfig::queue_depth(const ReceivePoolOptions& pool) const noexcept {
  return adapter.send_depth.value_or(0) + (pooled_receives ? pool.depth : adapter.recv_depth.value_or(0));
}

int HcaConfig::queue_depth() const noexcept {
  const auto shares_both = [](const ChannelConfig& each) { return each.pooled_receives && !each.own_completion_queue; };
  // All channels together cannot have more receives of a pool than the pool has.
  int depth = std::ranges::any_of(channels, shares_both) ? receive_pool.depth : 0;
  for (const ChannelConfig& each : channels) {
    if (each.own_completion_queue || each.device) continue;
    depth += each.adapter.send_depth.value_or(0);
    if (!each.pooled_receives) depth += each.adapter.recv_depth.value_or(0);
  }
  return depth;
}

}  // namespace rdmacomm
