// locked.h - the one lock of the checker.
#pragma once

#include <mutex>

#include "softdev/check/inside.h"

namespace rdmacomm::softdev::check {

/// Guards all records of the checker: objects, requests, stacks and reports. A process has one, so that fork() can take
/// it, and calls of several threads are recorded in one order. It is not held while the device executes a request.
[[nodiscard]] inline std::mutex& checker_mutex() noexcept {
  static auto& mutex = *new std::mutex;  // never destroyed: programs use verbs until they end
  return mutex;
}

/// Holds the lock, and marks the thread as inside the checker.
class Locked {
 public:
  Locked() { checker_mutex().lock(); }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;
  ~Locked() { checker_mutex().unlock(); }

 private:
  const Inside inside_;
};

}  // namespace rdmacomm::softdev::check
