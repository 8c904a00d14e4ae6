// completion_queue.h - the completions of many channels, and waiting for them.
// Layer: channel.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/spin_lock.h"
#include "channel/channel_core.h"
#include "channel/completion_waiter.h"
#include "channel/receive_pool_core.h"
#include "device/device_core.h"
#include "device/native_queue.h"
#include "rdmacomm/completion.h"
#include "rdmacomm/deadline.h"
#include "rdmacomm/polling.h"
#include "rdmacomm/result.h"

namespace rdmacomm {

/// The options of a completion queue. A value.
struct CompletionQueueOptions {
  PollingMode polling_mode = PollingMode::kBusyPoll;
  WaitOptions waiting = {};
  int depth = 256;        ///< maximum number of completions in it: 1..device limit
  bool may_grow = false;  ///< whether it grows if more channels are attached, as NativeQueueOptions::may_grow
};

/// The completions of the channels of one endpoint or, if shared, of several endpoints. The layers above know only this
/// kind of queue. Below it is the NativeQueue, to which queue pairs report. A resource: neither copyable nor movable.
///
/// Threads: poll() and the steps of waiting by one thread at a time; the other functions by any thread.
/// Lifetime: keeps its device alive; endpoints keep it alive. A channel must be detached before it is destroyed.
class CompletionQueue {
 public:
  /// Returns  as NativeQueue::create and CompletionWaiter::create
  [[nodiscard]] static Result<std::shared_ptr<CompletionQueue>> create(std::shared_ptr<DeviceCore> device,
                                                                       const CompletionQueueOptions& options);
  CompletionQueue(const CompletionQueue&) = delete;
  CompletionQueue& operator=(const CompletionQueue&) = delete;

  /// The native queue, for the adapters of its channels.
  [[nodiscard]] NativeQueue& native() noexcept { return *native_; }

  // The channels --------------------------------------------------------------------------------------------------

  /// Makes room for the completions of the receives of `pool`, once, and keeps the pool alive. Call it before creating
  /// a channel with that pool.
  /// Returns  as NativeQueue::reserve
  [[nodiscard]] Status make_room_for(const std::shared_ptr<ReceivePoolCore>& pool);
  /// From now on the completions of `channel` are delivered. Its adapter must report to native().
  void attach(ChannelCore& channel);
  /// After the return no completion names `channel`. Its completions that are still in the queue are dropped; receives
  /// of a pool go back to the pool.
  void detach(ChannelCore& channel);

  // Taking completions --------------------------------------------------------------------------------------------

  /// As RDMAChannel::poll(). While the queue is empty it polls up to `times` times (0 counts as 1). attach() and
  /// detach() do not wait for these repetitions.
  /// Cost: one uncontended lock for each call; a binary search for each completion.
  [[nodiscard]] Polled poll(std::span<Completion> out, std::uint32_t times = 1) noexcept;

  // Waiting for completions ---------------------------------------------------------------------------------------

  [[nodiscard]] PollingMode mode() const noexcept { return mode_; }
  [[nodiscard]] CompletionWaiter& waiter() const noexcept { return *waiter_; }
  /// One step of waiting, as CompletionWaiter::step. Returns with completions. It returns without completions when
  /// there may be some, after notify(), or when the deadline has passed (a step that spins: at once).
  [[nodiscard]] Polled wait_step(std::span<Completion> out, Deadline deadline) noexcept {
    Polled polled;
    const auto poll_now = [&]() noexcept {
      polled = poll(out, waiter_->polls_at_a_time());
      return !polled || !polled.empty();
    };
    // A notify() before this step does not get lost in a sleep: its wake() makes this step, or the next one, short.
    (void)waiter_->step(poll_now, deadline);
    return polled;
  }
  /// The same for callers that sleep on waiter().fd() themselves, as CompletionWaiter::step_outside.
  [[nodiscard]] Polled wait_step_outside(std::span<Completion> out) noexcept;
  /// Ends the current or the next wait_step(), and makes take_notice() true.
  void notify() noexcept;
  /// Whether notify() was called since the last take_notice(). Cost: one load if it was not.
  [[nodiscard]] bool take_notice() noexcept {
    return noticed_.load(std::memory_order_acquire) && noticed_.exchange(false, std::memory_order_acq_rel);
  }

 private:
  class Change;
  struct Entry {
    std::uint32_t qpn = 0;  // a copy of the number of the queue pair, for the search
    ChannelCore* channel = nullptr;
  };

  CompletionQueue(std::shared_ptr<DeviceCore> device, PollingMode mode, std::unique_ptr<NativeQueue> native,
                  std::unique_ptr<CompletionWaiter> waiter);
  // completion_queue_poll.cc
  [[nodiscard]] ChannelCore* owner_of(const ibv_wc& wc) noexcept;
  [[nodiscard]] bool deliver(const ibv_wc& wc, Completion& out) noexcept;
  [[nodiscard]] Errc take_more(std::span<Completion> out, std::size_t& count) noexcept;
  [[nodiscard]] Polled poll_for_end(std::span<Completion> out) noexcept;
  void drop(const ibv_wc& wc) noexcept;

  const std::shared_ptr<DeviceCore> device_;
  const PollingMode mode_;
  const bool reports_every_end_;  // DeviceLimits::flushes_in_error of the device
  std::mutex pools_mutex_;
  std::vector<std::shared_ptr<ReceivePoolCore>>
      pools_;  // declared before native_, which may hold completions of their receives
  const std::unique_ptr<NativeQueue> native_;
  const std::unique_ptr<CompletionWaiter> waiter_;
  std::atomic<bool> noticed_{false};
  // Held while polling, because the number of a queue pair may be given to another one as soon as its channel is
  // detached and destroyed.
  SpinLock lock_;
  std::atomic<std::uint32_t> changes_{0};  // changes that wait for the lock, or hold it
  std::vector<Entry> by_qpn_;              // sorted by qpn
  Entry last_;                             // the entry of the last completion; channel is nullptr if none
};

}  // namespace rdmacomm
