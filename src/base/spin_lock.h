// spin_lock.h - a lock that is held for a few tens of nanoseconds.
// Layer: base.
#pragma once

#include <sched.h>

#include <atomic>

namespace rdmacomm {

/// Tells the core that this thread is spinning. The core then gives more resources to the other hyper-thread, and uses
/// less power.
/// Cost: 5 to 50 ns, depending on the core.
inline void pause_core() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Taking it costs one atomic exchange, releasing it one store: half the cost of an uncontended std::mutex. If it is
/// taken, the caller spins for a moment, then yields, because the holder may be copying a large message or may have
/// lost its core. BasicLockable.
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
