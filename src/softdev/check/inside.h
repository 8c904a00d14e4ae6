// inside.h - marks a thread that executes code of the checker.
#pragma once

namespace rdmacomm::softdev::check {

/// The checker replaces free() and some system calls, and its own code calls them, too. A thread that holds such an
/// object is inside the checker: the replaced functions then only call the next library.
/// Threads: each thread has its own mark.
class Inside {
 public:
  Inside() noexcept { ++depth(); }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
  ~Inside() { --depth(); }

  [[nodiscard]] static bool is_inside() noexcept { return depth() != 0; }

 private:
  [[gnu::tls_model("initial-exec")]] static inline thread_local int depth_ = 0;
  static int& depth() noexcept { return depth_; }
};

}  // namespace rdmacomm::softdev::check
