// stream_link_guard.h - the lock of a StreamLink, and how one waits with it.
// Layer: stream, internal.
#pragma once

#include <utility>

#include "stream/stream_link.h"

namespace rdmacomm {

class StreamLink::Guard {
 public:
  explicit Guard(StreamLink& link) : link_(link), lock_(link.lock_) {}
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;
  ~Guard() { unlock(); }

  void lock() { lock_.lock(); }
  void unlock() {
    if (link_.dropped_.empty()) [[likely]]
      return lock_.unlock();
    const auto dropped = std::exchange(link_.dropped_, {});
    lock_.unlock();
  }
  /// Waits for the thread that polls.
  void follow(Deadline deadline) {
    ++link_.followers_;
    if (deadline.is_never()) {
      link_.changed_.wait(lock_);
    } else {
      (void)link_.changed_.wait_until(lock_, deadline.time_point());
    }
    --link_.followers_;
  }

 private:
  StreamLink& link_;
  BiasedGuard lock_;
};

/// Sends and polls until done(). Returns  what EndPoint::wait() says, or kTimeout; done() counts first.
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
