// completion_queue.h - the completions of many channels, and how one waits for them.
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

/// What a completion queue is made with. A value.
struct CompletionQueueOptions {
  PollingMode polling_mode = PollingMode::kBusyPoll;
  WaitOptions waiting = {};
  int depth = 256;        ///< completions that it has room for: 1..device limit
  bool may_grow = false;  ///< whether it becomes deeper if more is attached, as NativeQueueOptions::may_grow
};

/// The completions of the channels of one endpoint or, shared, of several: the only thing of its kind that the layers above know.
/// Below it is the NativeQueue, to which queue pairs report. A resource: neither copyable nor movable.
///
/// Threads: poll() and the steps of waiting from one thread at a time; the rest from any.
/// Lifetime: keeps its device alive; endpoints keep it alive. A channel is detached before it is destroyed.
class CompletionQueue {
 public:
  /// Returns  as NativeQueue::create and CompletionWaiter::create
  [[nodiscard]] static Result<std::shared_ptr<CompletionQueue>> create(std::shared_ptr<DeviceCore> device,
                                                                       const CompletionQueueOptions& options);
  CompletionQueue(const CompletionQueue&) = delete;
  CompletionQueue& operator=(const CompletionQueue&) = delete;

  /// For the adapters of its channels.
  [[nodiscard]] NativeQueue& native() noexcept { return *native_; }

  // Whose completions they are ------------------------------------------------------------------------------------

  /// Makes room for the completions of `pool`'s receives, once, and keeps it alive. Before a channel with that pool is
  /// made.
  /// Returns  as NativeQueue::reserve
  [[nodiscard]] Status make_room_for(const std::shared_ptr<ReceivePoolCore>& pool);
  /// From now on completions of `channel` are delivered. Its adapter reports to native().
  void attach(ChannelCore& channel);
  /// From the return on no completion names `channel`. Its completions still in the queue are dropped; receives of a
  /// pool go back to it.
  void detach(ChannelCore& channel);

  // Taking them ---------------------------------------------------------------------------------------------------

  /// As RDMAChannel::poll(). While there is nothing, up to `times` times, and once if that is 0. attach() and detach() do
  /// not wait for these.
  /// Cost: one uncontended lock a call; a binary search a completion.
  [[nodiscard]] Polled poll(std::span<Completion> out, std::uint32_t times = 1) noexcept;

  // Waiting for them ----------------------------------------------------------------------------------------------

  [[nodiscard]] PollingMode mode() const noexcept { return mode_; }
  [[nodiscard]] CompletionWaiter& waiter() const noexcept { return *waiter_; }
  /// One step of waiting, as CompletionWaiter::step. Returns with completions, or without any when there may be some,
  /// after notify(), or when the deadline has passed (a step that spins: at once).
  [[nodiscard]] Polled wait_step(std::span<Completion> out, Deadline deadline) noexcept {
    Polled polled;
    const auto poll_now = [&]() noexcept {
      polled = poll(out, waiter_->polls_at_a_time());
      return !polled || !polled.empty();
    };
    // A notice that came before is not slept through: wake() has made this step, or the next one, short.
    (void)waiter_->step(poll_now, deadline);
    return polled;
  }
  /// The same for a caller that sleeps on waiter().fd(), as CompletionWaiter::step_outside.
  [[nodiscard]] Polled wait_step_outside(std::span<Completion> out) noexcept;
  /// Ends the wait_step() that is under way, or the next one, and makes take_notice() true.
  void notify() noexcept;
  /// Whether notify() was called since the last time. Cost: one load if it was not.
  [[nodiscard]] bool take_notice() noexcept {
    return noticed_.load(std::memory_order_acquire) && noticed_.exchange(false, std::memory_order_acq_rel);
  }

 private:
  class Change;
  struct Entry {
    std::uint32_t qpn = 0;  // here, and not only in the channel, for the search
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
  const bool tells_every_end_;  // the device: DeviceLimits::flushes_in_error
  std::mutex pools_mutex_;
  std::vector<std::shared_ptr<ReceivePoolCore>> pools_;  // whose receives may be in native_: before it
  const std::unique_ptr<NativeQueue> native_;
  const std::unique_ptr<CompletionWaiter> waiter_;
  std::atomic<bool> noticed_{false};
  // Held while polling: a number may be given to another queue pair as soon as the one that had it is detached and
  // gone.
  SpinLock lock_;
  std::atomic<std::uint32_t> changes_{0};  // that wait for the lock, or have it
  std::vector<Entry> by_qpn_;              // sorted
  Entry last_;                             // that a completion was for; none: nullptr
};

}  // namespace rdmacomm
