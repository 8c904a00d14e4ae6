// inside.h - marks a thread that executes code of the checker.
#pragma once

#include <pthread.h>
#include <signal.h>

#include "base/blocked_signals.h"

namespace rdmacomm::softdev::check {

/// The checker replaces free() and some system calls, and its own code calls them, too. A thread that holds such an
/// object is inside the checker: the replaced functions then only call the next library. Signals wait meanwhile, because
/// their handlers may fork, exit or use verbs, and this thread may hold a lock of the checker or of malloc().
/// Threads: each thread has its own mark.
class Inside {
 public:
  Inside() noexcept {
    if (depth_++ == 0) before_ = block_signals();
  }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
  ~Inside() {
    if (--depth_ == 0) pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

  [[nodiscard]] static bool is_inside() noexcept { return depth_ != 0; }

 private:
  [[gnu::tls_model("initial-exec")]] static inline thread_local int depth_ = 0;
  [[gnu::tls_model("initial-exec")]] static inline thread_local sigset_t before_{};
};

}  // namespace rdmacomm::softdev::check
