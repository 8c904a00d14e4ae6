// at_exit.h - calls functions before the process ends.
#pragma once

#include <functional>

namespace rdmacomm::softdev {

/// Calls a function when the process ends by exit() or by returning from main(), if this object still exists then. The
/// function is not called in children that fork() made. Programs call exit() in signal handlers, although the standard
/// forbids it. So the function must not wait without a time limit for a lock, because the interrupted thread may hold
/// it.
/// Threads: any.
class AtExit {
 public:
  explicit AtExit(std::function<void()> task);
  AtExit(const AtExit&) = delete;
  AtExit& operator=(const AtExit&) = delete;
  ~AtExit();

  /// Calls the functions now, for a program that ends by _exit(). Does nothing in a child of fork() or vfork() that has
  /// none of its own.
  static void run_all();

 private:
  const std::function<void()> task_;
};

}  // namespace rdmacomm::softdev
