// completion_waiter.h - ways to wait for a completion, as small classes behind one interface.
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

/// Whether a completion queue needs a completion channel for it.
[[nodiscard]] constexpr bool sleeps(PollingMode mode) noexcept {
  return mode != PollingMode::kBusyPoll;
}

/// One way to wait for completions of one NativeQueue. A resource: neither copyable nor movable.
/// Threads: step, step_outside and spins from one thread at a time; the rest from any.
/// Lifetime: must not outlive its NativeQueue.
class CompletionWaiter {
 public:
  /// Returns  kNotSupported: a mode that sleeps, on a NativeQueue made without a channel; kInvalidArgument:
  ///          options.validate(); an error of the system's: too many open files
  [[nodiscard]] static Result<std::unique_ptr<CompletionWaiter>> create(PollingMode mode, NativeQueue& cq,
                                                                        const WaitOptions& options = {});
  virtual ~CompletionWaiter() = default;
  CompletionWaiter(const CompletionWaiter&) = delete;
  CompletionWaiter& operator=(const CompletionWaiter&) = delete;

  /// One step of waiting: polls; where that finds nothing, gets ready to sleep, polls again, and sleeps. No completion
  /// is slept through, whenever it comes.
  ///
  /// poll      takes completions from the queue, and says whether the caller wants to stop waiting: it was found, or
  ///           failed. While it finds nothing it may look polls_at_a_time() times, with nothing else between
  /// deadline  ends a sleep. A step that only spins does not look at it
  /// Returns   what the last poll() has said. False, too, when the queue has not been empty since: the caller looks at
  ///           its deadline and at what else ends its loop, and makes the next step
  /// Cost      kBusyPoll, and kAdaptive while it spins: no allocation, lock or system call, but the yield
  template <std::predicate Poll>
  [[nodiscard]] bool step(Poll&& poll, Deadline deadline) noexcept(noexcept(poll())) {
    if (poll()) return found();
    note_empty();
    if (empty_polls_ <= bare_polls_) return false;
    if (get_ready() && poll()) return found();
    wait(deadline);
    return false;
  }

  /// The same for who sleeps by itself, on fd(): returns where step() would sleep. From then on fd() becomes readable
  /// when there may be completions, after wake(), or with a descriptor that is watched. The caller looks at what else
  /// ends its loop between this and the sleep: a wake() before this is used up. kEpoll only.
  template <std::predicate Poll>
  [[nodiscard]] bool step_outside(Poll&& poll) noexcept(noexcept(poll())) {
    if (poll()) return found();
    note_empty();
    clear();
    return get_ready() && poll() && found();
  }

  /// Ends the step() that is under way, or the next one that would sleep. Costs a system call where the waiter may
  /// sleep.
  virtual void wake() noexcept = 0;
  /// So many polls in a row are what spinning begins with: whatever is looked at between two of them makes the second
  /// one late. 1 after these, and where the waiter sleeps at once.
  [[nodiscard]] std::uint32_t polls_at_a_time() const noexcept {
    return empty_polls_ == 0 && bare_polls_ != 0 ? bare_polls_ : 1;
  }
  /// Whether the last step() spun where it found nothing, so that the next one must follow at once.
  [[nodiscard]] bool spins() const noexcept { return spins_; }
  [[nodiscard]] WaitCounts counts() const noexcept;

  /// kEpoll: see step_outside(). -1 in the other modes.
  [[nodiscard]] virtual int fd() const noexcept { return -1; }
  /// kEpoll: waits for a descriptor of the application's, too. As DescriptorSet::add and remove; the function is called
  /// by step() and step_outside(), when there are no completions.
  /// Returns  also kNotSupported: in other modes
  [[nodiscard]] virtual Status watch(int fd, std::uint32_t events, DescriptorSet::Function function);
  virtual void unwatch(int /*fd*/) noexcept {}

 protected:
  /// bare_polls: with so many empty polls waiting begins, without get_ready() and wait()
  explicit CompletionWaiter(bool spins, std::uint32_t bare_polls = 0) noexcept
      : spins_(spins), bare_polls_(bare_polls) {}

  /// Gets ready to sleep. Returns whether the queue must be polled once more before wait().
  [[nodiscard]] virtual bool get_ready() noexcept = 0;
  /// Spins once, or sleeps until there may be completions, the deadline has passed, or wake() was called. Early returns
  /// are allowed.
  virtual void wait(Deadline deadline) noexcept = 0;
  /// Takes what has made fd() readable.
  virtual void clear() noexcept {}

  /// Polls in a row that have found nothing.
  [[nodiscard]] std::uint64_t empty_polls() const noexcept { return empty_polls_; }
  /// Whether get_ready() is called for the first time since something was found.
  [[nodiscard]] bool begins() const noexcept { return empty_polls_ == bare_polls_ + 1; }
  void note_spins(bool spins) noexcept { spins_ = spins; }
  void note_sleep(std::chrono::nanoseconds time) noexcept;

 private:
  bool found() noexcept {
    empty_polls_ = 0;
    return true;
  }
  void begin_wait() noexcept {
    // One thread writes, so that a plain addition does.
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
