// membarrier.h - one thread's barrier in place of all others'.
// Layer: base.
//
// Where one thread stores, then loads, and another does the same the other way round, either must see the other's store
// before its own load. That takes a full barrier on both sides; or, far cheaper for the one that does it often, nothing
// but the order of its instructions there, and on the other side a membarrier(2) system call, which makes every
// processor that runs a registered process pass a barrier.
#pragma once

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>

#include "base/sanitizer.h"

namespace rdmacomm {

/// Whether register_for_membarrier() has succeeded in this process: other threads and processes may rely on it from
/// then on.
inline std::atomic<bool>& is_relied_on_for_barriers() noexcept {
  static std::atomic<bool> is{false};
  return is;
}

/// Whether this process can take part: registered now, if it was not. Cost: a system call.
[[nodiscard]] inline bool register_for_membarrier() noexcept {
#ifdef RDMACOMM_THREAD_SANITIZER
  return false;  // the thread sanitizer cannot see it
#else
  if (syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) != 0) return false;
  is_relied_on_for_barriers().store(true, std::memory_order_relaxed);
  return true;
#endif
}

/// await_visibility(), which says how to `pause`.
template <typename Pause>
void await_visibility_or(Pause&& pause) noexcept {
  if (syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0) == 0) return;
  std::atomic<int> here{0};
  here.exchange(1, std::memory_order_seq_cst);
  // Refused although it was granted: a filter for system calls came later (seccomp), and others make no barriers of
  // their own. A processor empties its store buffer by itself, within microseconds.
  if (is_relied_on_for_barriers().load(std::memory_order_relaxed)) pause();
}

/// Between the store and the load of the side that does it seldom. Cost: a system call, and an interrupt of other
/// processors.
inline void await_visibility() noexcept {
  await_visibility_or([] {
    const timespec longer_than_any_store_waits{0, 1'000'000};
    nanosleep(&longer_than_any_store_waits, nullptr);
  });
}

}  // namespace rdmacomm
