#include "endpoint/completion_group.h"

#include <algorithm>

#include "device/completion_queue.h"
#include "device/device_core.h"

namespace rdmacomm {

Result<std::shared_ptr<CompletionGroup>> CompletionGroup::create(std::shared_ptr<DeviceCore> device,
                                                                 const CompletionGroupOptions& options) {
  auto queue = CompletionQueue::create(
      *device, {.depth = options.depth, .with_channel = sleeps(options.polling_mode), .may_grow = options.may_grow});
  if (!queue) return queue.error();
  auto waiter = CompletionWaiter::create(options.polling_mode, **queue, options.waiting);
  if (!waiter) return waiter.error();
  return std::shared_ptr<CompletionGroup>(
      new CompletionGroup(std::move(device), options.polling_mode, std::move(*queue), std::move(*waiter)));
}

CompletionGroup::CompletionGroup(std::shared_ptr<DeviceCore> device, PollingMode mode,
                                 std::unique_ptr<CompletionQueue> queue, std::unique_ptr<CompletionWaiter> waiter)
    : device_(std::move(device)), mode_(mode), queue_(std::move(queue)), waiter_(std::move(waiter)), poller_(*queue_) {}

Status CompletionGroup::make_room_for(const std::shared_ptr<ReceivePoolCore>& pool) {
  const std::lock_guard lock(pools_mutex_);
  if (std::ranges::find(pools_, pool) != pools_.end()) return {};
  if (Status room = queue_->reserve(pool->options().depth); !room) return room;
  pools_.push_back(pool);
  return {};
}

Polled CompletionGroup::wait_step_outside(std::span<Completion> out) noexcept {
  Polled polled;
  const auto poll_now = [&]() noexcept {
    polled = poll(out);
    return !polled || !polled.empty();
  };
  (void)waiter_->step_outside(poll_now);
  return polled;
}

void CompletionGroup::notify() noexcept {
  noticed_.store(true, std::memory_order_release);
  waiter_->wake();
}

}  // namespace rdmacomm
