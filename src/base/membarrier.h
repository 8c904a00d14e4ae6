// membarrier.h - one thread's barrier in place of all others'.
// Layer: base.
//
// Where one thread stores, then loads, and another does the same the other way round, either must see the other's store before its
// own load. That takes a full barrier on both sides; or, far cheaper for the one that does it often, nothing but the order of its
// instructions there, and on the other side a membarrier(2) system call, which makes every processor that runs a registered
// process pass a barrier.
#pragma once

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

#include "base/sanitizer.h"

namespace rdmacomm {

/// Whether this process can take part: registered now, if it was not. Cost: a system call.
[[nodiscard]] inline bool register_for_membarrier() noexcept {
#ifdef RDMACOMM_THREAD_SANITIZER
  return false;  // the thread sanitizer cannot see it
#else
  return syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0;
#endif
}

/// Between the store and the load of the side that does it seldom. Cost: a system call, and an interrupt of other processors.
inline void await_visibility() noexcept {
  if (syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0) != 0) {
    std::atomic<int> here{0};
    here.exchange(1, std::memory_order_seq_cst);
  }
}

}  // namespace rdmacomm
