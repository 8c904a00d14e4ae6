#include "lat_bw_benchmark/session_parts.h"

#include <algorithm>

#include "rdmacomm/device.h"
#include "rdmacomm/endpoint.h"
#include "support/sizes.h"

namespace rdmacomm::benchmark {

void fit_hca(HcaConfig& hca, const ModesAndAdapter& connection, const Plan& plan, Workspace& workspace) {
  connection.modes.apply(hca);
  const bool direct = hca.polling_mode == PollingMode::kBusyPoll && hca.thread_mode == ThreadMode::kApplication;
  ChannelConfig channel{.name = kDataChannel, .adapter = connection.adapter, .own_completion_queue = direct};
  const auto depth = static_cast<int>(plan.queue_depth);
  channel.adapter.send_depth = depth;
  // Twice the number of messages in flight, because a receive is posted again only after its completion was handled.
  channel.adapter.recv_depth = 2 * depth;
  channel.adapter.max_send_slices = 1;
  channel.adapter.max_recv_slices = 1;
  channel.adapter.max_inline_bytes = static_cast<int>(plan.inline_bytes);
  hca.channels = {channel};
  hca.publish(workspace.buffer());
}

Status check_limits(const RDMADevice& device, const Plan& plan) {
  const DeviceLimits& limits = device.limits();
  if (plan.sizes.back() > limits.max_message_bytes) {
    return make_error(Errc::kBeyondDeviceLimit, "a message of " + programs::size_text(plan.sizes.back()) +
                                                    " bytes is too large: the limit of " + device.to_text() + " is " +
                                                    programs::size_text(limits.max_message_bytes) + " bytes");
  }
  if (2 * static_cast<int>(plan.queue_depth) > limits.max_qp_wr) {
    return make_error(Errc::kBeyondDeviceLimit, "a queue depth of " + std::to_string(plan.queue_depth) +
                                                    " is too large: the limit for " + device.to_text() + " is " +
                                                    std::to_string(limits.max_qp_wr / 2));
  }
  if (!limits.immediate_data && std::ranges::find(plan.ops, Op::kWriteImm) != plan.ops.end()) {
    return make_error(Errc::kNotSupported, device.to_text() + " has no immediate data; leave write_imm out of --ops");
  }
  if (!limits.atomics && std::ranges::any_of(plan.ops, is_atomic)) {
    return make_error(Errc::kNotSupported,
                      device.to_text() + " has no atomics; leave fetch_add and compare_swap out of --ops");
  }
  return {};
}

Status check_workspace(const EndPoint& endpoint, const Plan& plan) {
  const auto region = endpoint.remote_region(kWorkspace);
  if (region && region->length == Workspace::bytes_for(plan)) return {};
  return make_error(Errc::kIncompatiblePeer, endpoint.peer() +
                                                 " has not published the memory that the plan needs; check "
                                                 "that it is the same release of lat_bw_benchmark");
}

}  // namespace rdmacomm::benchmark
