// wait.h - waits for a condition variable until a Deadline.
// Layer: base.
#pragma once

#include <condition_variable>

#include "rdmacomm/deadline.h"

namespace rdmacomm {

/// Waits once, until notified; spurious wake-ups are possible, as with condition variables. Returns false if the
/// deadline has passed.
template <typename Condition, typename Lock>
bool wait(Condition& condition, Lock& lock, Deadline deadline) {
  if (deadline.is_never()) {
    condition.wait(lock);
    return true;
  }
  return condition.wait_until(lock, deadline.time_point()) == std::cv_status::no_timeout;
}

/// Waits until done() is true. Returns the last value of done(): false if the deadline passed first.
template <typename Condition, typename Lock, typename Done>
[[nodiscard]] bool wait(Condition& condition, Lock& lock, Deadline deadline, Done done) {
  while (!done()) {
    if (!wait(condition, lock, deadline)) return done();
  }
  return true;
}

}  // namespace rdmacomm
