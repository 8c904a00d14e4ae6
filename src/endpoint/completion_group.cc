#include "rdmacomm/endpoint/completion_group.h"

namespace rdmacomm {

Result<std::shared_ptr<CompletionGroup>> CompletionGroup::create(std::shared_ptr<RDMADevice> device, PollingMode mode,
                                                                 int depth) {
  const bool sleeps = mode == PollingMode::kCompletionChannel;
  auto queue = CompletionQueue::create(*device, {.depth = depth, .with_channel = sleeps});
  if (!queue) return queue.error();
  auto waiter = CompletionWaiter::create(mode, **queue);
  if (!waiter) return waiter.error();
  return std::shared_ptr<CompletionGroup>(
      new CompletionGroup(std::move(device), mode, std::move(*queue), std::move(*waiter)));
}

CompletionGroup::CompletionGroup(std::shared_ptr<RDMADevice> device, PollingMode mode,
                                 std::unique_ptr<CompletionQueue> queue, std::unique_ptr<CompletionWaiter> waiter)
    : device_(std::move(device)), mode_(mode), queue_(std::move(queue)), waiter_(std::move(waiter)), poller_(*queue_) {}

std::error_code CompletionGroup::wait_step(std::span<Completion> out, std::size_t& count, Deadline deadline) noexcept {
  std::error_code failed = poll(out, count);
  if (failed || count > 0) return failed;
  if (waiter_->prepare()) {
    failed = poll(out, count);
    if (failed || count > 0) return failed;
  }
  // A notice that came before is not slept through: wake() has made this wait, or the next one, short.
  waiter_->wait(deadline);
  return {};
}

void CompletionGroup::notify() noexcept {
  noticed_.store(true, std::memory_order_release);
  waiter_->wake();
}

}  // namespace rdmacomm
