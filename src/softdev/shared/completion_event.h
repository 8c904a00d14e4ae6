// completion_event.h - waking whoever sleeps on a completion channel.
#pragma once

#include <unistd.h>

#include <atomic>
#include <cstdint>

#include "base/sanitizer.h"
#include "softdev/shared/layout.h"

namespace rdmacomm::softdev {

/// Orders all stores before it against all loads after it.
inline void full_fence() noexcept {
#ifdef RDMACOMM_THREAD_SANITIZER
  // The thread sanitizer does not know fences; an exchange is one on every CPU this device runs on.
  std::atomic<int> here{0};
  here.exchange(1, std::memory_order_seq_cst);
#else
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

/// Fires one event on the completion channel behind `wake_fd` (an eventfd in semaphore mode) if the queue is armed
/// for it. Called after the completion was published: the fence makes sure that either the arming side's next
/// poll sees the completion, or this side sees the queue armed. Only queues with a channel pay for it.
inline void fire(CqShared& cq, int wake_fd, bool solicited) noexcept {
  full_fence();
  std::uint32_t armed = cq.armed.load(std::memory_order_relaxed);
  if (armed == CqShared::kNot || (armed == CqShared::kSolicitedOnly && !solicited)) return;
  if (!cq.armed.compare_exchange_strong(armed, CqShared::kNot)) return;  // another completion woke it
  cq.pending_events.fetch_add(1, std::memory_order_release);
  const std::uint64_t one = 1;
  // Cannot fail: the counter would have to reach 2^64 - 1, and a closed descriptor belongs to nobody.
  (void)!write(wake_fd, &one, sizeof(one));
}

/// An initiator died, and may have disarmed the queue before without waking its sleeper: wakes it, for nothing if it had not. It may have
/// counted its event and not written it, too: where one is read that no queue has counted, get_cq_event() gives it to one of them.
inline void fire_for_the_dead(CqShared& cq, int wake_fd) noexcept {
  full_fence();
  if (cq.armed.load(std::memory_order_relaxed) != CqShared::kNot) return;
  cq.pending_events.fetch_add(1, std::memory_order_release);
  const std::uint64_t two = 2;
  (void)!write(wake_fd, &two, sizeof(two));
}

}  // namespace rdmacomm::softdev
