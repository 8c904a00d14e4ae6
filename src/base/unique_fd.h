// unique_fd.h - the owner of one file descriptor.
// Layer: base.
#pragma once

#include <unistd.h>

#include <utility>

namespace rdmacomm {

/// Returns `fd`, or, if that is 0, 1 or 2, a copy of it above these, and closes it. A program that was started without
/// standard input or output gets these numbers for its next files: whatever it prints would then go into a socket, or
/// into memory that is shared with other processes. -1, with errno: `fd` was -1, or there is no further descriptor, and
/// it is closed.
[[nodiscard]] int above_standard_streams(int fd) noexcept;

/// Owns a file descriptor and closes it. Movable, not copyable. Empty: -1. What it takes over is never the number of a
/// standard stream: ask get(), not the variable that it was made of.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) noexcept : fd_(above_standard_streams(fd)) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(other.release()) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) reset(other.release());
    return *this;
  }
  UniqueFd(const UniqueFd&) = delete;
  UniqueFd& operator=(const UniqueFd&) = delete;
  ~UniqueFd() { reset(); }

  [[nodiscard]] int get() const noexcept { return fd_; }
  [[nodiscard]] bool valid() const noexcept { return fd_ >= 0; }
  explicit operator bool() const noexcept { return valid(); }
  /// Gives the descriptor away; the caller closes it.
  [[nodiscard]] int release() noexcept { return std::exchange(fd_, -1); }
  /// Closes what is owned and takes `fd` over.
  void reset(int fd = -1) noexcept {
    const int old = std::exchange(fd_, above_standard_streams(fd));
    if (old >= 0) ::close(old);
  }

 private:
  int fd_ = -1;
};

}  // namespace rdmacomm
