#include "device/shared_receive_queue.h"

#include <string>

#include "base/check_range.h"
#include "device/device_core.h"
#include "verbs/call.h"

namespace rdmacomm {

Status SharedReceiveQueueOptions::validate(const DeviceLimits& limits) const {
  if (limits.max_srq == 0) {
    return make_error(Errc::kNotSupported,
                      "the device has no shared receive queues (its max_srq is 0): leave pooled_receives off, and "
                      "post receives on each channel");
  }
  const Status depth_fits = check_range("the depth of a shared receive queue", depth,
                                        {.low = 1, .high = limits.max_srq_wr, .high_of_device = true});
  if (!depth_fits) return depth_fits;
  return check_range("the max_slices of a shared receive queue", max_slices,
                     {.low = 1, .high = limits.max_sge, .high_of_device = true});
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
