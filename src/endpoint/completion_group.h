// completion_group.h - one completion queue, with the means to poll it and to wait for it.
// Layer: endpoint. Uses: base, device, adapter, channel.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "adapter/adapter_core.h"
#include "adapter/completion_waiter.h"
#include "channel/completion_poller.h"
#include "channel/receive_pool_core.h"
#include "device/completion_queue.h"
#include "device/device_core.h"
#include "rdmacomm/deadline.h"
#include "rdmacomm/result.h"

namespace rdmacomm {

/// What a group is made with. A value.
struct CompletionGroupOptions {
  PollingMode polling_mode = PollingMode::kBusyPoll;
  WaitOptions waiting = {};
  int depth = 256;        ///< completions that the queue has room for: 1..device limit
  bool may_grow = false;  ///< whether it becomes deeper where more is attached, as CompletionQueueOptions::may_grow
};

/// The completions of the channels of one endpoint or, shared, of several. A resource: neither copyable nor movable.
/// Threads: poll and wait from one thread at a time; the rest from any.
/// Lifetime: keeps its device alive; endpoints keep the group alive.
class CompletionGroup {
 public:
  /// Returns  as CompletionQueue::create and CompletionWaiter::create
  [[nodiscard]] static Result<std::shared_ptr<CompletionGroup>> create(std::shared_ptr<DeviceCore> device,
                                                                       const CompletionGroupOptions& options);
  CompletionGroup(const CompletionGroup&) = delete;
  CompletionGroup& operator=(const CompletionGroup&) = delete;

  [[nodiscard]] PollingMode mode() const noexcept { return mode_; }
  [[nodiscard]] CompletionQueue& queue() noexcept { return *queue_; }
  [[nodiscard]] CompletionPoller& poller() noexcept { return poller_; }
  [[nodiscard]] CompletionWaiter& waiter() const noexcept { return *waiter_; }

  /// Makes room for the completions of `pool`'s receives, once, and keeps it alive. Before a channel with that pool is
  /// made.
  /// Returns  as CompletionQueue::reserve
  [[nodiscard]] Status make_room_for(const std::shared_ptr<ReceivePoolCore>& pool);

  /// As CompletionPoller::poll.
  [[nodiscard]] Polled poll(std::span<Completion> out) noexcept { return poller_.poll(out); }
  /// One step of waiting, as CompletionWaiter::step. Returns with completions, or without any when there may be some,
  /// after notify(), or when the deadline has passed (a step that spins: at once).
  [[nodiscard]] Polled wait_step(std::span<Completion> out, Deadline deadline) noexcept {
    Polled polled;
    const auto poll_now = [&]() noexcept {
      polled = poller_.poll(out, waiter_->polls_at_a_time());
      return !polled || !polled.empty();
    };
    // A notice that came before is not slept through: wake() has made this step, or the next one, short.
    (void)waiter_->step(poll_now, deadline);
    return polled;
  }
  /// The same for who sleeps on waiter().fd(), as CompletionWaiter::step_outside.
  [[nodiscard]] Polled wait_step_outside(std::span<Completion> out) noexcept;
  /// Ends the wait_step() that is under way, or the next one, and makes take_notice() true.
  void notify() noexcept;
  /// Whether notify() was called since the last time. Cost: one load where it was not.
  [[nodiscard]] bool take_notice() noexcept {
    return noticed_.load(std::memory_order_acquire) && noticed_.exchange(false, std::memory_order_acq_rel);
  }

 private:
  CompletionGroup(std::shared_ptr<DeviceCore> device, PollingMode mode, std::unique_ptr<CompletionQueue> queue,
                  std::unique_ptr<CompletionWaiter> waiter);

  const std::shared_ptr<DeviceCore> device_;
  const PollingMode mode_;
  std::mutex pools_mutex_;
  std::vector<std::shared_ptr<ReceivePoolCore>> pools_;  // whose receives may be in queue_: before it
  const std::unique_ptr<CompletionQueue> queue_;
  const std::unique_ptr<CompletionWaiter> waiter_;
  CompletionPoller poller_;
  std::atomic<bool> noticed_{false};
};

}  // namespace rdmacomm
