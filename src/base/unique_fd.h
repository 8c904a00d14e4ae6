// unique_fd.h - the owner of one file descriptor.
// Layer: base.
#pragma once

#include <unistd.h>

#include <utility>

namespace rdmacomm {

/// Returns `fd`. If `fd` is 0, 1 or 2, returns a copy above these numbers and closes `fd`. If a program was started
/// without standard input or output, its next files get these numbers. Anything it prints would then go into a socket,
/// or into memory that other processes share. Returns -1, with errno, if `fd` was -1, or if no further descriptor is
/// available; `fd` is then closed.
[[nodiscard]] int above_standard_streams(int fd) noexcept;

/// Owns a file descriptor and closes it. Movable, not copyable. Empty: -1. The owned number is never that of a standard
/// stream, so use get() instead of the variable that was passed in.
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
  /// Gives up the descriptor; the caller closes it.
  [[nodiscard]] int release() noexcept { return std::exchange(fd_, -1); }
  /// Closes the owned descriptor and takes over `fd`.
  void reset(int fd = -1) noexcept {
    const int old = std::exchange(fd_, above_standard_streams(fd));
    if (old >= 0) ::close(old);
  }

 private:
  int fd_ = -1;
};

}  // namespace rdmacomm
