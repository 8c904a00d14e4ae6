// biased_lock.h - a lock that is nearly free for the one thread that mostly takes it.
// Layer: base.   Why so: docs/adr/0005-biased-lock.md
//
// A locked instruction waits until all stores before it have left the processor's store buffer: after a copy of 64 KiB
// that costs more than all the rest of a post. Nearly always it is one thread that takes the lock, its owner, so that
// one enters by plain stores: it says that it is inside, then looks whether anybody else wants in. Others take the lock
// among themselves, say that they want in, make the owner's store visible by membarrier(2), and wait until it is out.
// That is dear, and rare. Once a second thread has taken it as its owner would, it is an ordinary lock for ever.
#pragma once

#include <sched.h>

#include <atomic>

#include "base/membarrier.h"
#include "base/spin_lock.h"

namespace rdmacomm {

/// Threads: any. BasicLockable for visitors, who leave the bias as it is; whoever may be the owner takes it by
/// BiasedGuard, or by enter() and leave().
class BiasedLock {
 public:
  /// by_membarrier: the process has registered for it; otherwise this is a SpinLock.
  explicit BiasedLock(bool by_membarrier) noexcept : by_membarrier_(by_membarrier) {}

  /// Takes it for a thread that may be its owner, and makes the first one that. Returns  what leave() wants: whether
  /// that was by plain stores
  [[nodiscard]] bool enter() noexcept {
    if (enter_alone()) [[likely]]
      return true;
    enter_with_others();
    return false;
  }
  void leave(bool alone) noexcept {
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
    keep_owner_out();
    if (!owner_inside_.load(std::memory_order_acquire)) return true;
    unlock();
    return false;
  }
  /// Returns when whoever was inside when this thread last called await_visibility() has left. Others may be inside by
  /// then: they see what this thread stored before that call. Cost: no system call, so one serves for many locks.
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

  /// With lock_ held. From here on the owner goes by lock_, too.
  void keep_owner_out() noexcept {
    if (!by_membarrier_ || many_owners_ || owner_.load(std::memory_order_relaxed) == nullptr) return;
    others_.store(true, std::memory_order_relaxed);
    await_visibility();
  }

  /// Something that is another's for each living thread.
  [[nodiscard]] static const void* this_thread() noexcept {
    // The model makes it an access like any other, in a shared library too.
    __attribute__((tls_model("initial-exec"))) static thread_local const char here = 0;
    return &here;
  }

  /// By plain stores; false: not the owner, or others are about.
  [[nodiscard]] bool enter_alone() noexcept {
    if (owner_.load(std::memory_order_relaxed) != this_thread()) return false;
    owner_inside_.store(true, std::memory_order_relaxed);
    std::atomic_signal_fence(std::memory_order_seq_cst);  // the processor's half is others' membarrier
    if (!others_.load(std::memory_order_acquire)) [[likely]]
      return true;
    leave(true);
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

  const bool by_membarrier_;
  std::atomic<bool> owner_inside_{false};  // written by the owner alone
  std::atomic<bool> others_{false};
  std::atomic<const void*> owner_{nullptr};
  bool many_owners_ = false;  // under lock_
  SpinLock lock_;
};

/// Holds a BiasedLock for a thread that may be its owner.
class BiasedGuard {
 public:
  explicit BiasedGuard(BiasedLock& lock) noexcept : lock_(lock), alone_(lock.enter()) {}
  BiasedGuard(const BiasedGuard&) = delete;
  BiasedGuard& operator=(const BiasedGuard&) = delete;
  ~BiasedGuard() { lock_.leave(alone_); }

 private:
  BiasedLock& lock_;
  const bool alone_;
};

/// Tries to hold a BiasedLock, for a thread that may be the owner, to whom it costs next to nothing.
class BiasedTry {
 public:
  explicit BiasedTry(BiasedLock& lock) noexcept
      : lock_(lock), alone_(lock.enter_alone()), held_(alone_ || lock.try_lock()) {}
  BiasedTry(const BiasedTry&) = delete;
  BiasedTry& operator=(const BiasedTry&) = delete;
  ~BiasedTry() {
    if (alone_) {
      lock_.leave(true);
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
