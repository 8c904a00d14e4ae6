// wake_event.h - a flag that threads can sleep on.
// Layer: base.
#pragma once

#include "base/unique_fd.h"
#include "rdmacomm/result.h"

namespace rdmacomm {

/// An eventfd: readable once it is signalled. Movable, not copyable. A default-constructed one has no eventfd.
/// Threads: signal and clear from any.
class WakeEvent {
 public:
  WakeEvent() = default;
  /// Fails with a system error if there are too many open files.
  [[nodiscard]] static Result<WakeEvent> create();

  /// signal() makes it readable, clear() ends that.
  [[nodiscard]] int fd() const noexcept { return fd_.get(); }
  /// No effect on a default-constructed one.
  void signal() const noexcept;
  /// Returns whether it was signalled.
  bool clear() const noexcept;

 private:
  explicit WakeEvent(UniqueFd fd) noexcept : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

}  // namespace rdmacomm
