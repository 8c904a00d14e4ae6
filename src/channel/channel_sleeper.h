// channel_sleeper.h - arms a completion queue and wakes the waiters that sleep. Private to the channel layer.
#pragma once

#include "base/wake_event.h"
#include "device/native_queue.h"
#include "rdmacomm/result.h"

namespace rdmacomm {

/// The two descriptors that end a sleep: that of the completion channel, and one for wake().
///
/// An armed queue is not armed again until its event was taken: a completion since the arming has made the channel
/// readable, or will do so. So at most one event is pending, also if threads often arm the queue and do not sleep.
/// Threads: wake() by any thread; the other functions by one thread at a time.
class ChannelSleeper {
 public:
  /// kNotSupported: no completion channel.
  [[nodiscard]] static Result<ChannelSleeper> create(NativeQueue& cq);

  /// Arms the queue, if it is not armed. Returns whether it must be polled once more before a sleep, because
  /// completions from before the arming cause no event. If the device refuses, wake_fd() becomes readable, so that
  /// polling continues.
  [[nodiscard]] bool arm() noexcept;
  void wake() const noexcept { wake_event_.signal(); }

  [[nodiscard]] int channel_fd() const noexcept { return cq_->fd(); }
  [[nodiscard]] int wake_fd() const noexcept { return wake_event_.fd(); }
  /// Call take_event() when channel_fd() is readable, and take_wake_up() when wake_fd() is readable.
  void take_event() noexcept;
  void take_wake_up() const noexcept { wake_event_.clear(); }

 private:
  ChannelSleeper(NativeQueue& cq, WakeEvent wake_event) : cq_(&cq), wake_event_(std::move(wake_event)) {}

  NativeQueue* cq_;
  WakeEvent wake_event_;
  bool armed_ = false;
};

}  // namespace rdmacomm
