// spin_lock.h - a lock for a few tens of nanoseconds.
// Layer: base.
#pragma once

#include <sched.h>

#include <atomic>

namespace rdmacomm {

/// Tells the core that this thread is spinning: it leaves more of itself to the other hyper-thread, and uses less
/// power.
/// Cost: 5 to 50 ns, by the kind of core.
inline void pause_core() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// One atomic exchange to take, one store to give back: half of what an uncontended std::mutex costs. Who finds it
/// taken spins for a moment, then yields: the holder may be copying a large message, or may have lost its core.
/// BasicLockable.
class SpinLock {
 public:
  void lock() noexcept {
    while (!try_lock()) {
      for (int spins = 0; locked_.load(std::memory_order_relaxed); ++spins) {
        if (spins < kSpins) {
          pause_core();
        } else {
          sched_yield();
        }
      }
    }
  }
  [[nodiscard]] bool try_lock() noexcept { return !locked_.exchange(true, std::memory_order_acquire); }
  void unlock() noexcept { locked_.store(false, std::memory_order_release); }

 private:
  static constexpr int kSpins = 200;
  std::atomic<bool> locked_{false};
};

}  // namespace rdmacomm
