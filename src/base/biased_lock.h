// biased_lock.h - a lock that costs almost nothing for the one thread that takes it most of the time.
// Layer: base.   Reasons: docs/adr/0005-biased-lock.md
//
// A locked instruction waits until all earlier stores have left the processor's store buffer. After a copy of 64 KiB
// this wait costs more than the rest of a post. In most programs one thread, the owner, takes the lock nearly always.
// The owner therefore enters with plain stores: it sets its flag, then checks whether another thread wants the lock.
// Other threads use an inner lock among themselves. The holder of the inner lock sets its own flag, makes the owner's
// store visible by membarrier(2), and waits until the owner is out. This is expensive, and rare. Once a second thread
// has called enter(), or other threads have succeeded often with BiasedTry, this is an ordinary lock from then on.
#pragma once

#include <sched.h>

#include <atomic>

#include "base/membarrier.h"
#include "base/spin_lock.h"

namespace rdmacomm {

/// Threads: any. lock(), try_lock() and unlock() make it BasicLockable, and do not change the owner. A thread that may
/// become the owner uses BiasedGuard, or enter() and exit().
class BiasedLock {
 public:
  /// by_membarrier: the process is registered for membarrier(2); if false, this is a SpinLock.
  explicit BiasedLock(bool by_membarrier) noexcept : by_membarrier_(by_membarrier) {}

  /// Takes the lock for a thread that may be its owner. The first caller becomes the owner. Returns the argument for
  /// exit(): whether the lock was taken by plain stores.
  [[nodiscard]] bool enter() noexcept {
    if (enter_alone()) [[likely]]
      return true;
    enter_with_others();
    return false;
  }
  void exit(bool alone) noexcept {
    if (alone) [[likely]] {
      owner_inside_.store(false, std::memory_order_release);
    } else {
      lock_.unlock();
    }
  }

  void lock() noexcept {
    lock_.lock();
    keep_owner_out();
    while (owner_inside_.load(std::memory_order_acquire)) sched_yield();
  }
  [[nodiscard]] bool try_lock() noexcept {
    if (!lock_.try_lock()) return false;
    // This thread comes again if it fails, so it need not be certain.
    const bool is_inside = owner_inside_.load(std::memory_order_acquire);
    if (!is_inside) keep_owner_out();
    if (!is_inside && !owner_inside_.load(std::memory_order_acquire)) {
      if (tries_ < kMostTries && ++tries_ == kMostTries) many_owners_ = true;
      return true;
    }
    unlock();
    return false;
  }
  /// Returns when the thread that held the lock at this thread's last await_visibility() has left. Another thread may
  /// hold it by then, and it sees all stores that preceded that call. Cost: no system call, so one await_visibility()
  /// serves for many locks.
  void wait_until_left() noexcept {
    lock_.lock();
    lock_.unlock();
    while (owner_inside_.load(std::memory_order_acquire)) sched_yield();
  }
  void unlock() noexcept {
    if (!many_owners_) others_.store(false, std::memory_order_release);
    lock_.unlock();
  }

 private:
  friend class BiasedTry;

  /// With lock_ held. From here on the owner takes lock_, too.
  void keep_owner_out() noexcept {
    if (!by_membarrier_ || many_owners_ || owner_.load(std::memory_order_relaxed) == nullptr) return;
    others_.store(true, std::memory_order_relaxed);
    await_visibility();
  }

  /// A pointer that is different for each living thread.
  [[nodiscard]] static const void* this_thread() noexcept {
    // This TLS model makes it one memory access, in a shared library too.
    __attribute__((tls_model("initial-exec"))) static thread_local const char here = 0;
    return &here;
  }

  /// Enters by plain stores. Returns false if this thread is not the owner, or if other threads want the lock.
  [[nodiscard]] bool enter_alone() noexcept {
    if (owner_.load(std::memory_order_relaxed) != this_thread()) return false;
    owner_inside_.store(true, std::memory_order_relaxed);
    std::atomic_signal_fence(std::memory_order_seq_cst);  // for the compiler; membarrier(2) orders the processor
    if (!others_.load(std::memory_order_acquire)) [[likely]]
      return true;
    exit(true);
    return false;
  }

  void enter_with_others() noexcept {
    lock_.lock();
    if (!by_membarrier_ || many_owners_) return;
    const void* known = owner_.load(std::memory_order_relaxed);
    if (known == nullptr) owner_.store(this_thread(), std::memory_order_relaxed);
    if (known == nullptr || known == this_thread()) return;
    keep_owner_out();
    many_owners_ = true;
    while (owner_inside_.load(std::memory_order_acquire)) sched_yield();
  }

  /// A thread that tries as often as this is likely to go on, for example one that polls for the owner's completions.
  static constexpr int kMostTries = 64;

  const bool by_membarrier_;
  std::atomic<bool> owner_inside_{false};  // written by the owner alone
  std::atomic<bool> others_{false};
  std::atomic<const void*> owner_{nullptr};
  // Under lock_.
  bool many_owners_ = false;
  int tries_ = 0;  // number of successes of try_lock()
  SpinLock lock_;
};

/// Holds a BiasedLock for a thread that may be its owner.
class BiasedGuard {
 public:
  explicit BiasedGuard(BiasedLock& lock) noexcept : lock_(lock), alone_(lock.enter()) {}
  BiasedGuard(const BiasedGuard&) = delete;
  BiasedGuard& operator=(const BiasedGuard&) = delete;
  ~BiasedGuard() { lock_.exit(alone_); }

 private:
  BiasedLock& lock_;
  const bool alone_;
};

/// Tries to take a BiasedLock, for a thread that may be its owner. Almost free for the owner.
class BiasedTry {
 public:
  explicit BiasedTry(BiasedLock& lock) noexcept
      : lock_(lock), alone_(lock.enter_alone()), held_(alone_ || lock.try_lock()) {}
  BiasedTry(const BiasedTry&) = delete;
  BiasedTry& operator=(const BiasedTry&) = delete;
  ~BiasedTry() {
    if (alone_) {
      lock_.exit(true);
    } else if (held_) {
      lock_.unlock();
    }
  }
  explicit operator bool() const noexcept { return held_; }

 private:
  BiasedLock& lock_;
  const bool alone_;
  const bool held_;
};

}  // namespace rdmacomm
