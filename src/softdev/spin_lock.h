// spin_lock.h - a lock for a few tens of nanoseconds.
#pragma once

#include <sched.h>

#include <atomic>

namespace rdmacomm::softdev {

/// One atomic exchange to take, one store to give back. Who finds it taken spins for a moment, then yields: the
/// holder may be copying a large message, or may have lost its core. BasicLockable.
class SpinLock {
 public:
  void lock() noexcept {
    while (!try_lock()) {
      for (int spins = 0; locked_.load(std::memory_order_relaxed); ++spins) {
        if (spins < kSpins) {
          __builtin_ia32_pause();
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

}  // namespace rdmacomm::softdev
