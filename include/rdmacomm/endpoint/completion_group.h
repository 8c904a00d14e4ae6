// completion_group.h - one completion queue, with the means to poll it and to wait for it.
// Layer: endpoint. Uses: base, adapter, channel.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <span>

#include "rdmacomm/adapter/completion_waiter.h"
#include "rdmacomm/adapter/rdma_adapter.h"
#include "rdmacomm/base/deadline.h"
#include "rdmacomm/base/result.h"
#include "rdmacomm/channel/completion_poller.h"

namespace rdmacomm {

/// The completions of the channels of one endpoint or, shared, of several. A resource: neither copyable nor movable.
/// Threads: poll and wait from one thread at a time; the rest from any.
/// Lifetime: keeps its device alive; endpoints keep the group alive.
class CompletionGroup {
 public:
  /// depth  completions that the queue has room for: 1..device limit
  [[nodiscard]] static Result<std::shared_ptr<CompletionGroup>> create(std::shared_ptr<RDMADevice> device,
                                                                       PollingMode mode, int depth);
  CompletionGroup(const CompletionGroup&) = delete;
  CompletionGroup& operator=(const CompletionGroup&) = delete;

  [[nodiscard]] PollingMode mode() const noexcept { return mode_; }
  [[nodiscard]] CompletionQueue& queue() noexcept { return *queue_; }
  [[nodiscard]] CompletionPoller& poller() noexcept { return poller_; }

  /// As CompletionPoller::poll.
  [[nodiscard]] std::error_code poll(std::span<Completion> out, std::size_t& count) noexcept {
    return poller_.poll(out, count);
  }
  /// One step of waiting: polls, gets ready to sleep, polls again, sleeps. Returns with completions, or without any
  /// when there may be some, after notify(), or when the deadline has passed (mode kBusyPoll: at once).
  [[nodiscard]] std::error_code wait_step(std::span<Completion> out, std::size_t& count, Deadline deadline) noexcept;
  /// Ends the wait_step() that is under way, or the next one, and makes take_notice() true.
  void notify() noexcept;
  /// Whether notify() was called since the last time. Cost: one load where it was not.
  [[nodiscard]] bool take_notice() noexcept {
    return noticed_.load(std::memory_order_acquire) && noticed_.exchange(false, std::memory_order_acq_rel);
  }

 private:
  CompletionGroup(std::shared_ptr<RDMADevice> device, PollingMode mode, std::unique_ptr<CompletionQueue> queue,
                  std::unique_ptr<CompletionWaiter> waiter);

  const std::shared_ptr<RDMADevice> device_;
  const PollingMode mode_;
  const std::unique_ptr<CompletionQueue> queue_;
  const std::unique_ptr<CompletionWaiter> waiter_;
  CompletionPoller poller_;
  std::atomic<bool> noticed_{false};
};

}  // namespace rdmacomm
