// native_queue.h - one completion queue of a device, with or without a completion channel.
// Layer: device. Uses: base, verbs.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "base/unique_fd.h"
#include "rdmacomm/result.h"
#include "verbs/handles.h"

namespace rdmacomm {

class DeviceCore;

/// The depth of a completion queue, and whether threads can sleep on it.
struct NativeQueueOptions {
  int depth = 256;            ///< completions it holds, 1..device limit; the device may round up
  bool with_channel = false;  ///< whether it has a completion channel, so that a thread can sleep on fd()
  bool may_grow = false;      ///< whether reserve() makes it deeper, up to the device's limit, when it is full

  [[nodiscard]] Status validate(int device_limit) const;
};

/// Owns an ibv_cq (and its ibv_comp_channel). A resource: neither copyable nor movable.
/// Threads: reserve/release from any; arm and consume_events from one thread at a time.
/// Lifetime: must not outlive its DeviceCore, and must outlive the queue pairs that report to it.
class NativeQueue {
 public:
  /// Returns  kInvalidArgument, kBeyondDeviceLimit: options.validate(); or the system's error
  [[nodiscard]] static Result<std::unique_ptr<NativeQueue>> create(DeviceCore& device,
                                                                   const NativeQueueOptions& options);
  NativeQueue(const NativeQueue&) = delete;
  NativeQueue& operator=(const NativeQueue&) = delete;
  ~NativeQueue();

  [[nodiscard]] ibv_cq* get() const noexcept { return cq_.get(); }
  [[nodiscard]] int depth() const noexcept { return depth_.load(std::memory_order_relaxed); }

  /// Reserves room for a queue pair with up to `requests` outstanding requests, so that the queue never overruns. May
  /// be called while the queue is polled, slept on, or full.
  /// Returns  kCompletionQueueFull: less room than that is left, and the queue may not grow, or cannot (some devices
  ///          cannot resize); the context has the numbers
  [[nodiscard]] Status reserve(int requests);
  /// Releases room after the queue pair is destroyed.
  void release(int requests) noexcept;

  /// The completion channel's descriptor, readable while events are pending; -1 without a channel.
  [[nodiscard]] int fd() const noexcept { return channel_ ? channel_->fd : -1; }
  /// Requests one event at the next completion. To lose no wake-up: arm, poll once more, then sleep.
  /// kNotSupported: no channel.
  [[nodiscard]] Outcome arm() noexcept;
  /// Takes the pending events, without blocking. Acknowledges them in batches.
  void consume_events() noexcept;

 private:
  NativeQueue(const verbs::Api& api, verbs::CompChannelHandle channel, verbs::CqHandle cq, int depth_limit);
  [[nodiscard]] Error full_locked(int requests, const std::string& why_not_deeper) const;
  [[nodiscard]] Status grow_locked(int requests);

  const verbs::Api& api_;
  verbs::CompChannelHandle channel_;
  verbs::CqHandle cq_;
  const int depth_limit_;  // the largest depth it may grow to
  std::atomic<int> depth_;
  std::mutex mutex_;  // guards the members below, and changes of depth_
  int reserved_ = 0;
  unsigned unacknowledged_events_ = 0;
};

}  // namespace rdmacomm
