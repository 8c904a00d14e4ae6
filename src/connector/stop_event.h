// stop_event.h - a flag that threads can sleep on.
// Layer: connector. Uses: base.
#pragma once

#include "base/unique_fd.h"
#include "rdmacomm/result.h"

namespace rdmacomm {

/// An eventfd: readable once it was signalled. Movable, not copyable.
/// Threads: signal and clear from any.
class StopEvent {
 public:
  /// An error of the system's: too many open files.
  [[nodiscard]] static Result<StopEvent> create();

  /// Becomes readable by signal() and stays so until clear().
  [[nodiscard]] int fd() const noexcept { return fd_.get(); }
  void signal() const noexcept;
  void clear() const noexcept;

 private:
  explicit StopEvent(UniqueFd fd) noexcept : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

}  // namespace rdmacomm
