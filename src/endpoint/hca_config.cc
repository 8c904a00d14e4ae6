#include "rdmacomm/endpoint/hca_config.h"

#include <algorithm>
#include <set>

namespace rdmacomm {
namespace {

constexpr int kUsualSharedQueueDepth = 4096;

Error too_many(const char* what, std::size_t count, std::size_t most) {
  return make_error(Errc::kInvalidArgument, "an endpoint with " + std::to_string(count) + " " + what + ": at most " +
                                                std::to_string(most) + " are possible");
}

template <typename Named>
Status check_names(std::string_view what, const std::vector<Named>& list) {
  std::set<std::string_view> seen;
  for (const Named& each : list) {
    if (Status status = check_name(what, each.name); !status) return status;
    if (!seen.insert(each.name).second) {
      return make_error(Errc::kInvalidArgument, "two " + std::string(what) + "s are called '" + each.name + "'");
    }
  }
  return {};
}

}  // namespace

Status check_name(std::string_view what, std::string_view name) {
  const auto is_printable = [](char c) { return c >= ' ' && c <= '~'; };
  if (!name.empty() && name.size() <= HcaConfig::kMaxNameBytes && std::ranges::all_of(name, is_printable)) return {};
  return make_error(Errc::kInvalidArgument, "a " + std::string(what) + "'s name of " + std::to_string(name.size()) +
                                                " bytes: it must be 1.." + std::to_string(HcaConfig::kMaxNameBytes) +
                                                " printable ASCII characters");
}

ChannelConfig* HcaConfig::channel(std::string_view name) noexcept {
  const auto found = std::ranges::find(channels, name, &ChannelConfig::name);
  return found == channels.end() ? nullptr : &*found;
}

void HcaConfig::publish(const RDMABuffer& buffer) {
  published.push_back({buffer.name(), buffer.remote_region()});
}

Status HcaConfig::validate(const DeviceLimits& limits) const {
  if (channels.empty()) return make_error(Errc::kInvalidArgument, "an endpoint needs at least one channel");
  if (channels.size() > kMaxChannels) return too_many("channels", channels.size(), kMaxChannels);
  if (published.size() > kMaxRegions) return too_many("published regions", published.size(), kMaxRegions);
  if (private_data.size() > kMaxPrivateDataBytes) {
    return too_many("bytes of private data", private_data.size(), kMaxPrivateDataBytes);
  }
  if (Status status = check_names("channel", channels); !status) return status;
  if (Status status = check_names("published region", published); !status) return status;
  for (const ChannelConfig& each : channels) {
    Status status = each.adapter.validate(limits);
    if (!status) return make_error(status.code(), "channel '" + each.name + "': " + status.error().context);
  }
  const int queued = fitted(limits).queue_depth();
  if (queued > limits.max_cqe) {
    return make_error(Errc::kBeyondDeviceLimit, "the channels' depths add up to " + std::to_string(queued) +
                                                    " completions; the device's completion queues hold " +
                                                    std::to_string(limits.max_cqe));
  }
  if (thread_mode != ThreadMode::kThreadPerCompletionQueue) return {};
  if (Status status = check_name("shared queue", shared_queue_key); !status) return status;
  if (!shared_queue_depth || (*shared_queue_depth >= 1 && *shared_queue_depth <= limits.max_cqe)) return {};
  return make_error(*shared_queue_depth < 1 ? Errc::kInvalidArgument : Errc::kBeyondDeviceLimit,
                    "shared_queue_depth is " + std::to_string(*shared_queue_depth) + "; it must be 1.." +
                        std::to_string(limits.max_cqe) + " on this device");
}

HcaConfig HcaConfig::fitted(const DeviceLimits& limits) const {
  HcaConfig fitted = *this;
  for (ChannelConfig& each : fitted.channels) each.adapter = each.adapter.fitted(limits);
  fitted.shared_queue_depth = shared_queue_depth.value_or(std::min(kUsualSharedQueueDepth, limits.max_cqe));
  return fitted;
}

int HcaConfig::queue_depth() const noexcept {
  int depth = 0;
  for (const ChannelConfig& each : channels) {
    if (!each.own_completion_queue) depth += each.adapter.send_depth.value_or(0) + each.adapter.recv_depth.value_or(0);
  }
  return depth;
}

}  // namespace rdmacomm
