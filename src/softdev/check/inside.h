// inside.h - marks a thread that executes code of the checker.
#pragma once

#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace rdmacomm::softdev::check {

/// The checker replaces free() and some system calls, and its own code calls them, too. A thread that holds such an
/// object is inside the checker: the replaced functions then only call the next library. Signals wait meanwhile, because
/// their handlers may fork, exit or use verbs, and this thread may hold a lock of the checker or of malloc().
/// Threads: each thread has its own mark.
class Inside {
 public:
  Inside() noexcept {
    if (depth_++ == 0) set_mask(~kFaults, &before_);
  }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
  ~Inside() {
    if (--depth_ == 0) set_mask(before_, nullptr);
  }

  [[nodiscard]] static bool is_inside() noexcept { return depth_ != 0; }

 private:
  using Mask = std::uint64_t;  // of the kernel
  /// Caused by an instruction, so they cannot wait.
  static constexpr Mask kFaults = (1UL << (SIGSEGV - 1)) | (1UL << (SIGBUS - 1)) | (1UL << (SIGFPE - 1)) |
                                  (1UL << (SIGILL - 1)) | (1UL << (SIGTRAP - 1)) | (1UL << (SIGSYS - 1));

  static void set_mask(Mask mask, Mask* before) noexcept {
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &mask, before, sizeof(mask));
  }

  [[gnu::tls_model("initial-exec")]] static inline thread_local int depth_ = 0;
  [[gnu::tls_model("initial-exec")]] static inline thread_local Mask before_ = 0;
};

}  // namespace rdmacomm::softdev::check
