// turn.h - several threads wait for the same source: one of them reads it for all.
// Layer: base.
#pragma once

#include <cassert>
#include <condition_variable>
#include <utility>

#include "base/wait.h"
#include "rdmacomm/deadline.h"

namespace rdmacomm {

/// Decides which thread reads. Each of the threads loops:
///
///     while (!there_is_something_for_me()) {
///       if (turn.taken()) turn.follow(lock, deadline);           // waits until the reading thread has read
///       else turn.lead(lock, [&] { read_with_a_deadline(); });   // without the lock
///       ... store everything that was read where its thread looks for it
///     }
///
/// If every thread slept on the source, one thread could read the data of another, and the other would not wake up.
///
/// Condition  std::condition_variable, or std::condition_variable_any for other locks
/// Threads: all functions with the lock that guards the source.
template <typename Condition = std::condition_variable>
class Turn {
 public:
  /// Whether a thread is reading.
  [[nodiscard]] bool taken() const noexcept { return taken_; }

  /// Calls read() without the lock, and takes the lock again before it returns. Then wakes the waiting threads, so that
  /// they check again. Requires that no other thread reads.
  /// Returns  the value of read()
  template <typename Lock, typename Read>
  decltype(auto) lead(Lock& lock, Read&& read) {
    const Lead<Lock> led(*this, lock);
    return std::forward<Read>(read)();
  }

  /// Waits until the reading thread is done, or until notify(). Returns false if the deadline has passed.
  template <typename Lock>
  bool follow(Lock& lock, Deadline deadline) {
    ++followers_;
    const bool in_time = wait(changed_, lock, deadline);
    --followers_;
    return in_time;
  }

  /// Wakes all threads in follow(), so that they check again. Cost: none if no thread waits.
  void notify() noexcept {
    if (followers_ > 0) changed_.notify_all();
  }

 private:
  template <typename Lock>
  class Lead {
   public:
    Lead(Turn& turn, Lock& lock) : turn_(turn), lock_(lock) {
      assert(!turn_.taken_);
      turn_.taken_ = true;
      lock_.unlock();
    }
    Lead(const Lead&) = delete;
    Lead& operator=(const Lead&) = delete;
    ~Lead() {
      lock_.lock();
      turn_.taken_ = false;
      turn_.notify();
    }

   private:
    Turn& turn_;
    Lock& lock_;
  };

  Condition changed_;
  bool taken_ = false;
  int followers_ = 0;
};

}  // namespace rdmacomm
