// initiator_target.h - a queue pair as a target of initiators, who may be stopped in the middle of a request to it.
#pragma once

#include <infiniband/verbs.h>

#include <chrono>

namespace rdmacomm::softdev {

/// What Stragglers and those that wait for initiators must know of a queue pair.
/// Threads: any.
class InitiatorTarget {
 public:
  using Clock = std::chrono::steady_clock;

  InitiatorTarget() = default;
  InitiatorTarget(const InitiatorTarget&) = delete;
  InitiatorTarget& operator=(const InitiatorTarget&) = delete;
  virtual ~InitiatorTarget() = default;

  /// Whether an initiator is at work here.
  [[nodiscard]] virtual bool is_busy() const noexcept = 0;
  /// Whether its initiator is one of the Stragglers.
  virtual void set_left_behind(bool is) noexcept = 0;
  /// Wakes the threads that sleep on its receive completion queue: there may be something to flush.
  virtual void notify_receiver() noexcept = 0;
  /// Its initiator has let go. If the queue pair has been destroyed, does what had to wait for that.
  virtual void settle_after_destruction() noexcept = 0;
  /// The shared receive queue is destroyed.
  virtual void forget_shared_receives(const ibv_srq& queue) noexcept = 0;
  /// Waits, after await_visibility(), until neither an initiator nor a thread of this process is at work here. It waits past the
  /// deadline for an initiator that may be writing to memory by its address. false: the initiator does not let go.
  [[nodiscard]] virtual bool wait_until_seen_idle(Clock::time_point deadline) noexcept = 0;
};

}  // namespace rdmacomm::softdev
