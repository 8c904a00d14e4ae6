// stream_link_guard.h - the lock of a StreamLink, and waiting with it.
// Layer: stream, internal.
#pragma once

#include <utility>

#include "stream/stream_link.h"

namespace rdmacomm {

class StreamLink::Guard {
 public:
  explicit Guard(StreamLink& link) : link_(link), bare_(link.lock_) {}
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;
  ~Guard() { unlock(); }

  void lock() { bare_.lock(); }
  void unlock() {
    if (link_.dropped_.empty()) [[likely]]
      return bare_.unlock();
    unlock_and_drop();
  }
  /// Waits until the polling thread returns.
  void follow(Deadline deadline) { link_.turn_.follow(bare_, deadline); }

 private:
  /// Only the lock. A wait releases it and destroys nothing.
  class Bare {
   public:
    explicit Bare(BiasedLock& lock) : lock_(lock), alone_(lock.enter()) {}
    void lock() { alone_ = lock_.enter(); }
    void unlock() { lock_.exit(alone_); }

   private:
    BiasedLock& lock_;
    bool alone_;
  };

  [[gnu::noinline]] void unlock_and_drop() {
    const auto dropped = std::exchange(link_.dropped_, {});
    bare_.unlock();
  }

  StreamLink& link_;
  Bare bare_;
};

/// Sends and polls until done(). Returns  the error of EndPoint::wait(), or kTimeout; ok if done() is true.
template <typename Done>
Status StreamLink::wait_until(Guard& guard, Deadline deadline, Done done) {
  pump();
  while (!done()) {
    poll_now();
    pump();
    if (done()) break;
    if (deadline.passed()) return timed_out();
    const Status slept = sleep(guard, deadline);
    pump();
    if (!slept && slept.code() != Errc::kTimeout && !done()) return slept;
  }
  return {};
}

}  // namespace rdmacomm
