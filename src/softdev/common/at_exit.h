// at_exit.h - what is to be done before the process ends.
#pragma once

#include <functional>

namespace rdmacomm::softdev {

/// Has a function called when the process ends by exit() or the end of main(), if this object is still there. Not in children that
/// fork() made. A signal handler may call exit(), as programs do though the standard forbids it: the function must not wait without a
/// bound for what the interrupted thread may hold.
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
};

}  // namespace rdmacomm::softdev
