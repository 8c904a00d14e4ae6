// wait.h - waiting for a condition variable until a Deadline.
// Layer: base.
#pragma once

#include <condition_variable>

#include "rdmacomm/deadline.h"

namespace rdmacomm {

/// Waits once, until it is notified; it may also return without a reason, as condition variables do. Returns false if the
/// deadline has passed.
template <typename Condition, typename Lock>
bool wait(Condition& condition, Lock& lock, Deadline deadline) {
  if (deadline.is_never()) {
    condition.wait(lock);
    return true;
  }
  return condition.wait_until(lock, deadline.time_point()) == std::cv_status::no_timeout;
}

/// Waits until done(). Returns what that says at last: false if the deadline has passed first.
template <typename Condition, typename Lock, typename Done>
[[nodiscard]] bool wait(Condition& condition, Lock& lock, Deadline deadline, Done done) {
  while (!done()) {
    if (!wait(condition, lock, deadline)) return done();
  }
  return true;
}

}  // namespace rdmacomm
