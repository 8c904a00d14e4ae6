// completion_waiter.h - the ways to wait for a completion, as small classes with one interface.
// Layer: channel.   See docs/threading.md "Waiting", docs/adr/0011-waiting.md.
#pragma once

#include <atomic>
#include <chrono>
#include <concepts>
#include <cstdint>
#include <memory>

#include "base/descriptor_set.h"
#include "device/native_queue.h"
#include "rdmacomm/deadline.h"
#include "rdmacomm/polling.h"
#include "rdmacomm/result.h"

namespace rdmacomm {

/// Whether a completion queue needs a completion channel for this mode.
[[nodiscard]] constexpr bool sleeps(PollingMode mode) noexcept {
  return mode != PollingMode::kBusyPoll;
}

/// One way to wait for completions of one NativeQueue. A resource: neither copyable nor movable.
/// Threads: step, step_outside and spins by one thread at a time; the other functions by any thread.
/// Lifetime: must not outlive its NativeQueue.
class CompletionWaiter {
 public:
  /// Returns  kNotSupported: a mode that sleeps, on a NativeQueue created without a channel; kInvalidArgument:
  ///          options.validate(); a system error: too many open files
  [[nodiscard]] static Result<std::unique_ptr<CompletionWaiter>> create(PollingMode mode, NativeQueue& cq,
                                                                        const WaitOptions& options = {});
  virtual ~CompletionWaiter() = default;
  CompletionWaiter(const CompletionWaiter&) = delete;
  CompletionWaiter& operator=(const CompletionWaiter&) = delete;

  /// One step of waiting: polls; if nothing is found, gets ready to sleep, polls again, and sleeps. A completion that
  /// arrives at any of these moments ends the sleep.
  ///
  /// poll      takes completions from the queue. Returns true if the caller wants to stop waiting: it has found some,
  ///           or polling has failed. While it finds nothing it may poll polls_at_a_time() times, and do nothing else
  /// deadline  ends a sleep. A step that only spins does not check it
  /// Returns   the result of the last poll(). Also false if the step has slept, or has spun: the caller then checks its
  ///           deadline and its other end conditions, and makes the next step
  /// Cost      kBusyPoll, and kAdaptive while it spins: no allocation, lock or system call, except the yield
  template <std::predicate Poll>
  [[nodiscard]] bool step(Poll&& poll, Deadline deadline) noexcept(noexcept(poll())) {
    if (poll()) return found();
    note_empty();
    if (empty_polls_ <= bare_polls_) return false;
    if (get_ready() && poll()) return found();
    wait(deadline);
    return false;
  }

  /// The same for callers that sleep on fd() themselves: returns when step() would sleep. From then on fd() becomes
  /// readable when there may be completions, after wake(), or with a watched descriptor. Before the sleep the caller
  /// must check again whether its loop has to end, because this call consumes an earlier wake(). kEpoll only.
  template <std::predicate Poll>
  [[nodiscard]] bool step_outside(Poll&& poll) noexcept(noexcept(poll())) {
    if (poll()) return found();
    note_empty();
    clear();
    return get_ready() && poll() && found();
  }

  /// Ends the current step(), or the next one that would sleep. Cost: a system call if the waiter may sleep.
  virtual void wake() noexcept = 0;
  /// Number of back-to-back polls before anything else is checked, because a check between two polls delays the second
  /// one. Large at the start of a wait, then 1; always 1 for waiters that do not spin.
  [[nodiscard]] std::uint32_t polls_at_a_time() const noexcept {
    return empty_polls_ == 0 && bare_polls_ != 0 ? bare_polls_ : 1;
  }
  /// Whether the last step() found nothing and spun, so that the next step must follow at once.
  [[nodiscard]] bool spins() const noexcept { return spins_; }
  [[nodiscard]] WaitCounts counts() const noexcept;

  /// kEpoll: the descriptor for step_outside(). -1 in the other modes.
  [[nodiscard]] virtual int fd() const noexcept { return -1; }
  /// kEpoll: waits for a descriptor of the application, too. As DescriptorSet::add and remove. step() and
  /// step_outside() call the function when they find no completions.
  /// Returns  also kNotSupported: in other modes
  [[nodiscard]] virtual Status watch(int fd, std::uint32_t events, DescriptorSet::Function function);
  virtual void unwatch(int /*fd*/) noexcept {}

 protected:
  /// bare_polls: number of empty polls at the start of a wait, before the first get_ready() and wait()
  explicit CompletionWaiter(bool spins, std::uint32_t bare_polls = 0) noexcept
      : spins_(spins), bare_polls_(bare_polls) {}

  /// Gets ready to sleep. Returns whether the queue must be polled once more before wait().
  [[nodiscard]] virtual bool get_ready() noexcept = 0;
  /// Spins once, or sleeps until there may be completions, the deadline has passed, or wake() was called. Early returns
  /// are allowed.
  virtual void wait(Deadline deadline) noexcept = 0;
  /// Takes the events that have made fd() readable.
  virtual void clear() noexcept {}

  /// Number of consecutive polls that have found nothing.
  [[nodiscard]] std::uint64_t empty_polls() const noexcept { return empty_polls_; }
  /// Whether this is the first call of get_ready() since something was found.
  [[nodiscard]] bool begins() const noexcept { return empty_polls_ == bare_polls_ + 1; }
  void note_spins(bool spins) noexcept { spins_ = spins; }
  void note_sleep(std::chrono::nanoseconds time) noexcept;

 private:
  bool found() noexcept {
    empty_polls_ = 0;
    return true;
  }
  void begin_wait() noexcept {
    // Only one thread writes, so a plain addition is enough.
    waits_.store(waits_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    has_slept_ = false;
  }
  void note_empty() noexcept {
    if (empty_polls_ == 0) begin_wait();
    empty_polls_ += polls_at_a_time();
  }

  std::uint64_t empty_polls_ = 0;
  bool spins_;
  const std::uint32_t bare_polls_;
  bool has_slept_ = false;  // in this wait
  std::atomic<std::uint64_t> waits_{0};
  std::atomic<std::uint64_t> slept_{0};
  std::atomic<std::uint64_t> sleeps_{0};
  std::atomic<std::int64_t> asleep_ns_{0};
};

}  // namespace rdmacomm
