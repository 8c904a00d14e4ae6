// channel_sleeper.h - arming a completion queue and being woken, for the waiters that sleep. Private to the channel
// layer.
#pragma once

#include "base/wake_event.h"
#include "device/native_queue.h"
#include "rdmacomm/result.h"

namespace rdmacomm {

/// The two descriptors that end a sleep: the completion channel's, and one for wake().
///
/// Once armed, the queue is not armed again until its event was taken: a completion since the arming has either made
/// the channel readable, or will. So there is never more than one event, however often somebody gets ready and does not
/// sleep.
/// Threads: wake from any, the rest from one at a time.
class ChannelSleeper {
 public:
  /// kNotSupported: no completion channel.
  [[nodiscard]] static Result<ChannelSleeper> create(NativeQueue& cq);

  /// Arms the queue, if it is not armed. Returns whether it must be polled once more before a sleep: what came before
  /// the arming makes no event. Where the device refuses, wake_fd() becomes readable: polling goes on.
  [[nodiscard]] bool arm() noexcept;
  void wake() const noexcept { wake_event_.signal(); }

  [[nodiscard]] int channel_fd() const noexcept { return cq_->fd(); }
  [[nodiscard]] int wake_fd() const noexcept { return wake_event_.fd(); }
  /// To be called when the one, or the other, is readable.
  void take_event() noexcept;
  void take_wake_up() const noexcept { wake_event_.clear(); }

 private:
  ChannelSleeper(NativeQueue& cq, WakeEvent wake_event) : cq_(&cq), wake_event_(std::move(wake_event)) {}

  NativeQueue* cq_;
  WakeEvent wake_event_;
  bool armed_ = false;
};

}  // namespace rdmacomm
