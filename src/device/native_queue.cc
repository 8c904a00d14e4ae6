#include "device/native_queue.h"

#include <fcntl.h>

#include <algorithm>
#include <string>

#include "base/check_range.h"
#include "device/device_core.h"
#include "verbs/call.h"

namespace rdmacomm {
namespace {

// An acknowledgement takes a mutex in libibverbs, so one call acknowledges many events.
constexpr unsigned kAcknowledgeBatch = 64;

// Without this, consume_events() would block after the last event.
Status make_non_blocking(int fd) {
  const int flags = fcntl(fd, F_GETFL);
  Status status = verbs::from_minus_one(flags, "read the flags of the completion channel");
  if (!status.ok()) return status;
  return verbs::from_minus_one(fcntl(fd, F_SETFL, flags | O_NONBLOCK), "make the completion channel non-blocking");
}

Result<verbs::CompChannelHandle> create_channel(DeviceCore& device) {
  const std::string what = "create a completion channel on " + device.to_text();
  const auto channel = verbs::from_null(device.api().create_comp_channel(device.context()), what);
  if (!channel) return channel.error();
  verbs::CompChannelHandle handle(device.api(), *channel);
  if (Status status = make_non_blocking(handle->fd); !status.ok()) return status.error();
  return handle;
}

}  // namespace

Status NativeQueueOptions::validate(int device_limit) const {
  return check_range("the depth of a completion queue", depth,
                     {.low = 1, .high = device_limit, .high_of_device = true});
}

Result<std::unique_ptr<NativeQueue>> NativeQueue::create(DeviceCore& device, const NativeQueueOptions& options) {
  if (Status status = options.validate(device.limits().max_cqe); !status.ok()) return status.error();
  verbs::CompChannelHandle channel;
  if (options.with_channel) {
    auto created = create_channel(device);
    if (!created) return std::move(created).error();
    channel = std::move(created).value();
  }
  constexpr int kVector = 0;  // the interrupt line; every device has this one
  const std::string what = "create a completion queue of depth " + std::to_string(options.depth) + " on " +
                           device.to_text() + "; out of memory may also mean the locked-memory limit (`ulimit -l`)";
  const auto cq =
      verbs::from_null(device.api().create_cq(device.context(), options.depth, nullptr, channel.get(), kVector), what);
  if (!cq) return cq.error();
  const int depth_limit = options.may_grow ? device.limits().max_cqe : (*cq)->cqe;
  return std::unique_ptr<NativeQueue>(
      new NativeQueue(device.api(), std::move(channel), verbs::CqHandle(device.api(), *cq), depth_limit));
}

NativeQueue::NativeQueue(const verbs::Api& api, verbs::CompChannelHandle channel, verbs::CqHandle cq, int depth_limit)
    : api_(api), channel_(std::move(channel)), cq_(std::move(cq)), depth_limit_(depth_limit), depth_(cq_->cqe) {}

NativeQueue::~NativeQueue() {
  // destroy_cq waits until every event that was taken is acknowledged.
  if (unacknowledged_events_ > 0) api_.ack_cq_events(cq_.get(), unacknowledged_events_);
}

Status NativeQueue::reserve(int requests) {
  const std::lock_guard lock(mutex_);
  if (requests > depth() - reserved_) {
    if (Status grown = grow_locked(requests); !grown) return grown;
  }
  reserved_ += requests;
  return {};
}

/// Doubles the depth at least, because queue pairs are added one by one and each resize copies the queue.
Status NativeQueue::grow_locked(int requests) {
  const int needed = reserved_ + requests;
  if (needed > depth_limit_) {
    return full_locked(requests, "make the completion queue deeper, or the queue pairs shallower");
  }
  const int wanted = std::max(needed, std::min(2 * depth(), depth_limit_));
  const int failed = api_.resize_cq(cq_.get(), wanted);
  if (failed != 0) {
    return full_locked(requests, "the device cannot make it deeper (" + verbs::os_error(failed).message() +
                                     "): create it with a larger depth");
  }
  depth_.store(cq_->cqe, std::memory_order_relaxed);
  return {};
}

Error NativeQueue::full_locked(int requests, const std::string& why_not_deeper) const {
  return make_error(Errc::kCompletionQueueFull, "a completion queue of depth " + std::to_string(depth()) +
                                                    " has room for " + std::to_string(depth() - reserved_) +
                                                    " more requests, but a queue pair needs " +
                                                    std::to_string(requests) + "; " + why_not_deeper);
}

void NativeQueue::release(int requests) noexcept {
  const std::lock_guard lock(mutex_);
  reserved_ -= requests;
}

Outcome NativeQueue::arm() noexcept {
  if (!channel_) return Errc::kNotSupported;
  const int returned = ibv_req_notify_cq(cq_.get(), 0);  // 0: for any completion, not for solicited ones only
  return returned == 0 ? Outcome() : Outcome::of_system(returned);
}

void NativeQueue::consume_events() noexcept {
  if (!channel_) return;
  ibv_cq* cq = nullptr;
  void* cq_context = nullptr;
  while (api_.get_cq_event(channel_.get(), &cq, &cq_context) == 0) ++unacknowledged_events_;
  if (unacknowledged_events_ < kAcknowledgeBatch) return;
  api_.ack_cq_events(cq_.get(), unacknowledged_events_);
  unacknowledged_events_ = 0;
}

}  // namespace rdmacomm
