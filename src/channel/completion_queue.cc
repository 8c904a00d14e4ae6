#include "channel/completion_queue.h"

#include <algorithm>

namespace rdmacomm {

Result<std::shared_ptr<CompletionQueue>> CompletionQueue::create(std::shared_ptr<DeviceCore> device,
                                                                 const CompletionQueueOptions& options) {
  auto native = NativeQueue::create(
      *device, {.depth = options.depth, .with_channel = sleeps(options.polling_mode), .may_grow = options.may_grow});
  if (!native) return native.error();
  auto waiter = CompletionWaiter::create(options.polling_mode, **native, options.waiting);
  if (!waiter) return waiter.error();
  return std::shared_ptr<CompletionQueue>(
      new CompletionQueue(std::move(device), options.polling_mode, std::move(*native), std::move(*waiter)));
}

CompletionQueue::CompletionQueue(std::shared_ptr<DeviceCore> device, PollingMode mode,
                                 std::unique_ptr<NativeQueue> native, std::unique_ptr<CompletionWaiter> waiter)
    : device_(std::move(device)),
      mode_(mode),
      reports_every_end_(device_->limits().flushes_in_error),
      native_(std::move(native)),
      waiter_(std::move(waiter)) {}

Status CompletionQueue::make_room_for(const std::shared_ptr<ReceivePoolCore>& pool) {
  const std::lock_guard lock(pools_mutex_);
  if (std::ranges::find(pools_, pool) != pools_.end()) return {};
  if (Status room = native_->reserve(pool->options().depth); !room) return room;
  pools_.push_back(pool);
  return {};
}

Polled CompletionQueue::wait_step_outside(std::span<Completion> out) noexcept {
  Polled polled;
  const auto poll_now = [&]() noexcept {
    polled = poll(out);
    return !polled || !polled.empty();
  };
  (void)waiter_->step_outside(poll_now);
  return polled;
}

void CompletionQueue::notify() noexcept {
  noticed_.store(true, std::memory_order_release);
  waiter_->wake();
}

}  // namespace rdmacomm
