// completion_poller.h - completions of many channels from one completion queue.
// Layer: channel. Uses: base, device.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "base/spin_lock.h"
#include "channel/channel_core.h"
#include "device/completion_queue.h"

namespace rdmacomm {

/// Polls one CompletionQueue and tells by the queue pair number which channel each completion belongs to.
/// Threads: poll from one thread at a time; attach and detach from any.
/// Lifetime: must not outlive the CompletionQueue; a channel is detached before it is destroyed.
class CompletionPoller {
 public:
  explicit CompletionPoller(CompletionQueue& cq) : cq_(cq) {}

  /// From now on completions of `channel` are delivered here. Its adapter reports to this CompletionQueue.
  void attach(ChannelCore& channel);
  /// From the return on no completion names `channel`. Its completions still in the queue are dropped; receives of a
  /// pool, which the CompletionQueue's owner keeps alive, go back to it.
  void detach(ChannelCore& channel);

  /// As ChannelCore::poll; while there is nothing, up to `times` times, and once if that is 0. attach() and detach() do
  /// not wait for these.
  /// Cost: one uncontended lock a call; a binary search a completion.
  [[nodiscard]] Polled poll(std::span<Completion> out, std::uint32_t times = 1) noexcept;

 private:
  class Change;
  struct Entry {
    std::uint32_t qpn = 0;  // here, and not only in the channel, for the search
    ChannelCore* channel = nullptr;
  };

  [[nodiscard]] ChannelCore* owner_of(const ibv_wc& wc) noexcept;
  [[nodiscard]] bool deliver(const ibv_wc& wc, Completion& out) noexcept;
  [[nodiscard]] Errc take_more(std::span<Completion> out, std::size_t& count) noexcept;
  [[nodiscard]] Polled poll_for_end(std::span<Completion> out) noexcept;
  void drop(const ibv_wc& wc) noexcept;

  CompletionQueue& cq_;
  // Held while polling: a number may be given to another queue pair as soon as the one that had it is detached and
  // gone.
  SpinLock lock_;
  std::atomic<std::uint32_t> changes_{0};  // that wait for the lock, or have it
  std::vector<Entry> by_qpn_;              // sorted
  Entry last_;                             // that a completion was for; none: nullptr
  bool tells_every_end_ = true;            // the device: DeviceLimits::flushes_in_error
};

}  // namespace rdmacomm
