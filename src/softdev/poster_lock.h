// poster_lock.h - the lock of a send queue: nearly free for the one thread that posts.
//
// A locked instruction waits until all stores before it have left the processor's store buffer: after a copy of 64 KiB
// that costs more than all the rest of a post. Nearly always it is one thread that posts to a queue pair, so that one
// enters by plain stores: it says that it is inside, then looks whether anybody else wants in. Others take the lock
// among themselves, say that they want in, make the poster's store visible by membarrier(2), as hazard.h explains, and
// wait until it is out. That is dear, and rare: changes of state, and retries. Once a second thread has posted, it is an
// ordinary lock for ever.
#pragma once

#include <atomic>

#include "rdmacomm/base/spin_lock.h"
#include "softdev/hazard.h"

namespace rdmacomm::softdev {

/// Threads: any. BasicLockable for everybody but the poster, who takes it by PosterGuard.
class PosterLock {
 public:
  /// by_membarrier: the process has registered for it; otherwise this is a SpinLock.
  explicit PosterLock(bool by_membarrier) noexcept : by_membarrier_(by_membarrier) {}

  void lock() noexcept {
    lock_.lock();
    keep_poster_out();
    while (poster_inside_.load(std::memory_order_acquire)) sched_yield();
  }
  [[nodiscard]] bool try_lock() noexcept {
    if (!lock_.try_lock()) return false;
    keep_poster_out();
    if (!poster_inside_.load(std::memory_order_acquire)) return true;
    unlock();
    return false;
  }
  void unlock() noexcept {
    if (!many_posters_) others_.store(false, std::memory_order_release);
    lock_.unlock();
  }

 private:
  friend class PosterGuard;
  friend class PosterTry;

  /// With lock_ held. From here on the poster goes by lock_, too.
  void keep_poster_out() noexcept {
    if (!by_membarrier_ || many_posters_ || poster_.load(std::memory_order_relaxed) == nullptr) return;
    others_.store(true, std::memory_order_relaxed);
    await_visibility();
  }

  /// Something that is another's for each living thread.
  [[nodiscard]] static const void* this_thread() noexcept {
    // The model makes it an access like any other, in a shared library too.
    __attribute__((tls_model("initial-exec"))) static thread_local const char here = 0;
    return &here;
  }

  /// By plain stores; false: not the poster, or others are about.
  [[nodiscard]] bool enter_alone() noexcept {
    if (poster_.load(std::memory_order_relaxed) != this_thread()) return false;
    poster_inside_.store(true, std::memory_order_relaxed);
    std::atomic_signal_fence(std::memory_order_seq_cst);  // the processor's half is others' membarrier
    if (!others_.load(std::memory_order_acquire)) return true;
    leave_alone();
    return false;
  }
  void leave_alone() noexcept { poster_inside_.store(false, std::memory_order_release); }

  void enter_with_others() noexcept {
    lock_.lock();
    if (!by_membarrier_ || many_posters_) return;
    const void* known = poster_.load(std::memory_order_relaxed);
    if (known == nullptr) poster_.store(this_thread(), std::memory_order_relaxed);
    if (known == nullptr || known == this_thread()) return;
    keep_poster_out();
    many_posters_ = true;
    while (poster_inside_.load(std::memory_order_acquire)) sched_yield();
  }

  const bool by_membarrier_;
  std::atomic<bool> poster_inside_{false};  // written by the poster alone
  std::atomic<bool> others_{false};
  std::atomic<const void*> poster_{nullptr};
  bool many_posters_ = false;  // under lock_
  SpinLock lock_;
};

/// Holds a PosterLock for a thread that posts.
class PosterGuard {
 public:
  explicit PosterGuard(PosterLock& lock) noexcept : lock_(lock), alone_(lock.enter_alone()) {
    if (!alone_) lock_.enter_with_others();
  }
  PosterGuard(const PosterGuard&) = delete;
  PosterGuard& operator=(const PosterGuard&) = delete;
  ~PosterGuard() {
    if (alone_) {
      lock_.leave_alone();
    } else {
      lock_.lock_.unlock();
    }
  }

 private:
  PosterLock& lock_;
  const bool alone_;
};

/// Tries to hold a PosterLock, for a thread that may be the poster, to whom it costs next to nothing.
class PosterTry {
 public:
  explicit PosterTry(PosterLock& lock) noexcept
      : lock_(lock), alone_(lock.enter_alone()), held_(alone_ || lock.try_lock()) {}
  PosterTry(const PosterTry&) = delete;
  PosterTry& operator=(const PosterTry&) = delete;
  ~PosterTry() {
    if (alone_) {
      lock_.leave_alone();
    } else if (held_) {
      lock_.unlock();
    }
  }
  explicit operator bool() const noexcept { return held_; }

 private:
  PosterLock& lock_;
  const bool alone_;
  const bool held_;
};

}  // namespace rdmacomm::softdev
