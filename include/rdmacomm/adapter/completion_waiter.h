// completion_waiter.h - ways to wait for a completion, as small classes behind one interface.
// Layer: adapter. Uses: base, device.
#pragma once

#include <memory>

#include "rdmacomm/base/deadline.h"
#include "rdmacomm/base/unique_fd.h"
#include "rdmacomm/device/completion_queue.h"

namespace rdmacomm {

/// How completions are waited for.
enum class PollingMode : std::uint8_t {
  kBusyPoll,           ///< a core spins: lowest latency
  kCompletionChannel,  ///< the thread sleeps until the device wakes it: lowest use of CPU
};

/// One way to wait for completions of one CompletionQueue.
/// Threads: prepare and wait from one thread at a time; wake from any.
///
/// The loop of whoever polls:   for (;;) { if (poll()) return; if (waiter.prepare() && poll()) return; waiter.wait(deadline); }
/// prepare() arms what needs arming; the poll after it is what makes sure that no completion is slept through.
class CompletionWaiter {
 public:
  /// kNotSupported: kCompletionChannel on a CompletionQueue made without a channel.
  [[nodiscard]] static Result<std::unique_ptr<CompletionWaiter>> create(PollingMode mode, CompletionQueue& cq);
  virtual ~CompletionWaiter() = default;
  CompletionWaiter() = default;
  CompletionWaiter(const CompletionWaiter&) = delete;
  CompletionWaiter& operator=(const CompletionWaiter&) = delete;

  /// Gets ready to wait. Returns whether the caller must poll once more before wait().
  [[nodiscard]] virtual bool prepare() noexcept = 0;
  /// Returns when there may be completions, when the deadline has passed, or after wake(). Early returns are
  /// allowed: the caller polls and looks at its deadline itself.
  virtual void wait(Deadline deadline) noexcept = 0;
  /// Ends a wait() that is under way, or the next one. Costs a system call where the waiter sleeps.
  virtual void wake() noexcept = 0;
};

}  // namespace rdmacomm
