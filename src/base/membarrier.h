// membarrier.h - one thread runs a memory barrier on behalf of all others.
// Layer: base.
//
// Two threads each store to one variable, then load the other's. At least one of them must see the other's store.
// Normally both need a full barrier between the store and the load. If one of them does this often, a cheaper way is
// this: the frequent thread only keeps the order of its instructions. The rare thread makes a membarrier(2) system
// call, which makes every processor that runs a registered process pass a barrier.
#pragma once

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>

#include "base/sanitizer.h"

namespace rdmacomm {

/// Whether register_for_membarrier() has succeeded in this process. Other threads and processes may rely on it from
/// then on.
inline std::atomic<bool>& is_relied_on_for_barriers() noexcept {
  static std::atomic<bool> is{false};
  return is;
}

/// Registers this process, if it was not registered. Returns whether it can take part. Cost: a system call.
[[nodiscard]] inline bool register_for_membarrier() noexcept {
#ifdef RDMACOMM_THREAD_SANITIZER
  return false;  // the thread sanitizer cannot see it
#else
  if (syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) != 0) return false;
  is_relied_on_for_barriers().store(true, std::memory_order_relaxed);
  return true;
#endif
}

/// As await_visibility(), with the caller's way to wait, `pause`.
template <typename Pause>
void await_visibility_or(Pause&& pause) noexcept {
  if (syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0) == 0) return;
  std::atomic<int> here{0};
  here.exchange(1, std::memory_order_seq_cst);
  // The kernel had granted this earlier and refuses it now: a filter for system calls was installed in between
  // (seccomp). The other threads make no barriers of their own, so wait: a processor empties its store buffer by
  // itself, within microseconds.
  if (is_relied_on_for_barriers().load(std::memory_order_relaxed)) pause();
}

/// For the rare thread, between its store and its load. Cost: a system call, and an interrupt of other processors.
inline void await_visibility() noexcept {
  await_visibility_or([] {
    const timespec longer_than_any_store_waits{0, 1'000'000};
    nanosleep(&longer_than_any_store_waits, nullptr);
  });
}

}  // namespace rdmacomm
