// shared_receive_queue.h - one queue of receives for many queue pairs.
// Layer: device. Uses: base, verbs.
#pragma once

#include <memory>

#include "rdmacomm/result.h"
#include "verbs/handles.h"

namespace rdmacomm {

class DeviceCore;
struct DeviceLimits;

struct SharedReceiveQueueOptions {
  int depth = 1024;    ///< receives that it can hold: 1..DeviceLimits::max_srq_wr; the device may round up
  int max_slices = 1;  ///< slices of one receive: 1..DeviceLimits::max_sge

  /// kNotSupported: the device has no shared receive queues; kInvalidArgument, kBeyondDeviceLimit: a value outside its
  /// range. The context names the field, the value and the bound.
  [[nodiscard]] Status validate(const DeviceLimits& limits) const;
};

/// Owns an ibv_srq. A resource: neither copyable nor movable.
/// Threads: all functions, and ibv_post_srq_recv on get(), from any.
/// Lifetime: must not outlive its DeviceCore, and must outlive the queue pairs that receive from it.
class SharedReceiveQueue {
 public:
  /// Returns  as options.validate(); or the system's error
  [[nodiscard]] static Result<std::unique_ptr<SharedReceiveQueue>> create(DeviceCore& device,
                                                                          const SharedReceiveQueueOptions& options);
  SharedReceiveQueue(const SharedReceiveQueue&) = delete;
  SharedReceiveQueue& operator=(const SharedReceiveQueue&) = delete;

  [[nodiscard]] ibv_srq* get() const noexcept { return srq_.get(); }

  /// Requests one IBV_EVENT_SRQ_LIMIT_REACHED event for when fewer than `limit` receives are left. If fewer are left
  /// already, the event comes at once. After the event the limit is off; 0 turns it off, too.
  /// Returns  the device's error. Cost: a verbs call
  /// Source   ibv_modify_srq(3)
  [[nodiscard]] Status arm_limit(int limit);

 private:
  SharedReceiveQueue(const verbs::Api& api, verbs::SrqHandle srq) : api_(api), srq_(std::move(srq)) {}

  const verbs::Api& api_;
  verbs::SrqHandle srq_;
};

}  // namespace rdmacomm
