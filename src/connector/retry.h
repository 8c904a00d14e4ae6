// retry.h - increasing pauses between attempts, until a deadline. Private to the library.
#pragma once

#include <algorithm>
#include <chrono>

#include "connector/socket.h"
#include "rdmacomm/deadline.h"

namespace rdmacomm {

/// The time until `deadline` as a TcpOptions::connect_timeout, which is within 1 ms..1 h.
[[nodiscard]] inline std::chrono::milliseconds time_left(Deadline deadline) {
  using std::chrono::milliseconds;
  const auto left = std::chrono::ceil<milliseconds>(deadline.remaining());
  return std::clamp(left, milliseconds(1), milliseconds(std::chrono::hours(1)));
}

/// The pauses of one series of attempts. Threads: one at a time.
class RetryPause {
 public:
  /// cancel_fd: becomes readable to give up; -1: none.
  RetryPause(Deadline deadline, int cancel_fd) noexcept : deadline_(deadline), cancel_fd_(cancel_fd) {}

  [[nodiscard]] Deadline deadline() const noexcept { return deadline_; }
  [[nodiscard]] bool passed() const { return deadline_.passed(); }
  /// Returns false if cancelled.
  [[nodiscard]] bool sleep() {
    const Deadline again = Deadline::after(pause_).sooner(deadline_);
    pause_ = std::min(pause_ * 2, kLongest);
    return wait_for(-1, 0, cancel_fd_, again) != Waited::kCancelled;
  }

 private:
  static constexpr std::chrono::milliseconds kFirst{20};
  static constexpr std::chrono::milliseconds kLongest{200};

  const Deadline deadline_;
  const int cancel_fd_;
  std::chrono::milliseconds pause_ = kFirst;
};

}  // namespace rdmacomm
