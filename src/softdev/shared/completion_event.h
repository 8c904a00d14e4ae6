// completion_event.h - wakes the thread that sleeps on a completion channel.
#pragma once

#include <unistd.h>

#include <atomic>
#include <cstdint>

#include "base/sanitizer.h"
#include "softdev/shared/layout.h"

namespace rdmacomm::softdev {

/// Orders all earlier stores before all later loads.
inline void full_fence() noexcept {
#ifdef RDMACOMM_THREAD_SANITIZER
  // The thread sanitizer does not support fences. An exchange is a full fence on every CPU this device runs on.
  std::atomic<int> here{0};
  here.exchange(1, std::memory_order_seq_cst);
#else
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

/// Fires one event on the completion channel behind `wake_fd` (an eventfd in semaphore mode) if the queue is armed for
/// it. Call it after the completion was published. The fence guarantees that one of two things happens: the next poll
/// of the thread that arms sees the completion, or this thread sees the queue armed. Only queues with a channel pay for
/// it.
inline void fire(CqShared& cq, int wake_fd, bool solicited) noexcept {
  full_fence();
  std::uint32_t armed = cq.armed.load(std::memory_order_relaxed);
  if (armed == CqShared::kNot || (armed == CqShared::kSolicitedOnly && !solicited)) return;
  if (!cq.armed.compare_exchange_strong(armed, CqShared::kNot)) return;  // another completion has woken the sleeper
  cq.pending_events.fetch_add(1, std::memory_order_release);
  const std::uint64_t one = 1;
  // Cannot fail: the counter would have to reach 2^64 - 1. If the descriptor is closed, the event is not needed.
  (void)!write(wake_fd, &one, sizeof(one));
}

/// Call this when an initiator has died. It may have disarmed the queue without waking the sleeper, so this wakes it.
/// The wake-up may be unnecessary. The initiator may also have counted its event without writing it; hence two. If
/// get_cq_event() reads an event that no queue has counted, it gives the event to one of them.
inline void fire_for_the_dead(CqShared& cq, int wake_fd) noexcept {
  full_fence();
  if (cq.armed.load(std::memory_order_relaxed) != CqShared::kNot) return;
  cq.pending_events.fetch_add(1, std::memory_order_release);
  const std::uint64_t two = 2;
  (void)!write(wake_fd, &two, sizeof(two));
}

}  // namespace rdmacomm::softdev
