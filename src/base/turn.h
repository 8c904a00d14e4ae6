// turn.h - several threads wait for the same source: one reads it, for all of them.
// Layer: base.
#pragma once

#include <cassert>
#include <condition_variable>
#include <utility>

#include "base/wait.h"
#include "rdmacomm/deadline.h"

namespace rdmacomm {

/// Which of the threads reads. Each of them loops:
///
///     while (!there_is_something_for_me()) {
///       if (turn.taken()) turn.follow(lock, deadline);           // waits until the one that reads has read
///       else turn.lead(lock, [&] { read_with_a_deadline(); });   // without the lock
///       ... each thing that was read goes where its thread looks for it
///     }
///
/// If each of them slept on the source, one that reads what another waits for would leave that one asleep.
///
/// Condition  std::condition_variable, or std::condition_variable_any for other locks
/// Threads: all functions with the lock that guards the source.
template <typename Condition = std::condition_variable>
class Turn {
 public:
  /// Whether a thread reads.
  [[nodiscard]] bool taken() const noexcept { return taken_; }

  /// Calls read() without the lock, which is taken again before this returns; the other threads then look again. Only if
  /// no other thread reads.
  /// Returns  what read() does
  template <typename Lock, typename Read>
  decltype(auto) lead(Lock& lock, Read&& read) {
    const Lead<Lock> led(*this, lock);
    return std::forward<Read>(read)();
  }

  /// Waits until the thread that reads has read, or somebody has called notify(). Returns false if the deadline has passed.
  template <typename Lock>
  bool follow(Lock& lock, Deadline deadline) {
    ++followers_;
    const bool in_time = wait(changed_, lock, deadline);
    --followers_;
    return in_time;
  }

  /// Has all who follow look again. Cost: none if nobody does.
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
