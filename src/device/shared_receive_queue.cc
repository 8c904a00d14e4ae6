#include "device/shared_receive_queue.h"

#include <string>

#include "device/device_core.h"
#include "verbs/call.h"

namespace rdmacomm {
namespace {

Status check(const char* name, int value, int most) {
  if (value >= 1 && value <= most) return {};
  return make_error(value < 1 ? Errc::kInvalidArgument : Errc::kBeyondDeviceLimit,
                    std::string("the ") + name + " of a shared receive queue is " + std::to_string(value) +
                        "; it must be 1.." + std::to_string(most) + " on this device");
}

}  // namespace

Status SharedReceiveQueueOptions::validate(const DeviceLimits& limits) const {
  if (limits.max_srq == 0) {
    return make_error(Errc::kNotSupported,
                      "the device has no shared receive queues (its max_srq is 0): leave pooled_receives off, and "
                      "post receives on each channel");
  }
  if (Status status = check("depth", depth, limits.max_srq_wr); !status) return status;
  return check("max_slices", max_slices, limits.max_sge);
}

Result<std::unique_ptr<SharedReceiveQueue>> SharedReceiveQueue::create(DeviceCore& device,
                                                                       const SharedReceiveQueueOptions& options) {
  if (Status status = options.validate(device.limits()); !status) {
    return make_error(status.code(), device.to_text() + ": " + status.error().context);
  }
  ibv_srq_init_attr init{};
  init.attr.max_wr = static_cast<std::uint32_t>(options.depth);
  init.attr.max_sge = static_cast<std::uint32_t>(options.max_slices);
  const auto srq = verbs::from_null(
      device.api().create_srq(device.pd(), &init),
      "create a shared receive queue of depth " + std::to_string(options.depth) + " on " + device.to_text());
  if (!srq) return srq.error();
  return std::unique_ptr<SharedReceiveQueue>(
      new SharedReceiveQueue(device.api(), verbs::SrqHandle(device.api(), *srq)));
}

Status SharedReceiveQueue::arm_limit(int limit) {
  ibv_srq_attr attributes{};
  attributes.srq_limit = static_cast<std::uint32_t>(limit);
  return verbs::from_value(api_.modify_srq(srq_.get(), &attributes, IBV_SRQ_LIMIT),
                           "set the limit of a shared receive queue to " + std::to_string(limit));
}

}  // namespace rdmacomm
