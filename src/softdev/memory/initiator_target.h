// initiator_target.h - a queue pair as the target of initiators, which may be stopped in the middle of a request.
#pragma once

#include <infiniband/verbs.h>

#include <chrono>

namespace rdmacomm::softdev {

/// The interface of a queue pair for Stragglers and for threads that wait for initiators.
/// Threads: any.
class InitiatorTarget {
 public:
  using Clock = std::chrono::steady_clock;

  InitiatorTarget() = default;
  InitiatorTarget(const InitiatorTarget&) = delete;
  InitiatorTarget& operator=(const InitiatorTarget&) = delete;
  virtual ~InitiatorTarget() = default;

  /// True if an initiator is at work here.
  [[nodiscard]] virtual bool is_busy() const noexcept = 0;
  /// is  true: its initiator is one of the Stragglers.
  virtual void set_left_behind(bool is) noexcept = 0;
  /// Wakes the threads that sleep on its receive completion queue, because requests may have to be flushed.
  virtual void notify_receiver() noexcept = 0;
  /// Call this when its initiator has released it. If the queue pair has been destroyed, completes the deferred part of
  /// its destruction.
  virtual void settle_after_destruction() noexcept = 0;
  /// Call this when the shared receive queue is destroyed.
  virtual void forget_shared_receives(const ibv_srq& queue) noexcept = 0;
  /// Waits, after await_visibility(), until no initiator and no thread of this process is at work here. If an initiator
  /// may be writing to memory by its address, it waits past the deadline. Returns false: the initiator did not release
  /// it.
  [[nodiscard]] virtual bool wait_until_seen_idle(Clock::time_point deadline) noexcept = 0;
};

}  // namespace rdmacomm::softdev
