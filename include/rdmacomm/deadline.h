// deadline.h - the point in time at which a wait gives up.
// Layer: base.
#pragma once

#include <algorithm>
#include <chrono>

#include "rdmacomm/version.h"

namespace rdmacomm {

/// A point on the steady clock, or never. A value. Every wait of the library takes a Deadline, so that several waits
/// can share one time budget.
class RDMACOMM_API Deadline {
 public:
  using Clock = std::chrono::steady_clock;  ///< steady: setting the system's time does not move deadlines

  /// Converts a duration, so that a wait can be written as `wait(5s)`. In a loop, create one Deadline before the loop;
  /// otherwise each round gets the full duration again.
  template <typename Rep, typename Period>
  Deadline(std::chrono::duration<Rep, Period> from_now)  // NOLINT(google-explicit-constructor): see above
      : Deadline(in(from_now)) {}

  /// `from_now` later than now. Negative counts as zero: already passed. Beyond the range of the clock: never.
  [[nodiscard]] static Deadline after(Clock::duration from_now) {
    const auto now = Clock::now();
    return from_now < Clock::time_point::max() - now ? Deadline(now + from_now) : never();
  }
  /// At `point`; Clock::time_point::max() is never().
  [[nodiscard]] static Deadline at(Clock::time_point point) { return Deadline(point); }
  /// Never passes. For waits that another thread ends, for example with stop().
  [[nodiscard]] static Deadline never() { return Deadline(Clock::time_point::max()); }

  /// Whether it is never().
  [[nodiscard]] bool is_never() const noexcept { return point_ == Clock::time_point::max(); }
  /// Whether the point has been reached; false for never(). Cost: reads the clock.
  [[nodiscard]] bool passed() const { return !is_never() && Clock::now() >= point_; }
  /// The point; Clock::time_point::max() for never().
  [[nodiscard]] Clock::time_point time_point() const noexcept { return point_; }

  /// The remaining time, at least zero; Clock::duration::max() for never().
  [[nodiscard]] Clock::duration remaining() const {
    if (is_never()) return Clock::duration::max();
    return std::max(point_ - Clock::now(), Clock::duration::zero());
  }
  /// The remaining time for poll(2): milliseconds rounded up, at most one hour; -1 for never().
  [[nodiscard]] int poll_timeout_ms() const {
    if (is_never()) return -1;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(remaining()).count();
    return static_cast<int>(std::min<long>(left, 3'600'000));
  }
  /// The earlier of the two.
  [[nodiscard]] Deadline sooner(Deadline other) const noexcept { return point_ <= other.point_ ? *this : other; }

 private:
  explicit Deadline(Clock::time_point point) : point_(point) {}
  /// Durations that the clock cannot express are limited to the range of the clock.
  template <typename Duration>
  [[nodiscard]] static Deadline in(Duration from_now) {
    if (from_now <= Duration::zero()) return after(Clock::duration::zero());
    if (from_now >= std::chrono::duration_cast<Duration>(Clock::duration::max())) return never();
    return after(std::chrono::ceil<Clock::duration>(from_now));
  }

  Clock::time_point point_;
};

}  // namespace rdmacomm
