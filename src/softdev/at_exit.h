// at_exit.h - what is to be done before the process ends.
#pragma once

#include <sys/types.h>

#include <functional>

namespace rdmacomm::softdev {

/// Has a function called when the process ends by exit() or the end of main(), if this object is still there. Not in children that
/// fork() made.
/// Threads: any.
class AtExit {
 public:
  explicit AtExit(std::function<void()> task);
  AtExit(const AtExit&) = delete;
  AtExit& operator=(const AtExit&) = delete;
  ~AtExit();

 private:
  static void run_all();

  const std::function<void()> task_;
  const pid_t owner_;
};

}  // namespace rdmacomm::softdev
