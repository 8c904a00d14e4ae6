// polling.h - how threads wait for completions.
// Layer: channel.   Which mode to choose: docs/threading.md "Waiting"
#pragma once

#include <chrono>
#include <cstdint>

#include "rdmacomm/result.h"

namespace rdmacomm {

/// How threads wait for completions.
enum class PollingMode : std::uint8_t {
  kBusyPoll,           ///< the thread spins on a core: lowest latency
  kCompletionChannel,  ///< the thread sleeps until the device wakes it: lowest use of CPU
  kEpoll,              ///< the thread sleeps with epoll: it can watch more descriptors, and has a descriptor itself
  kAdaptive,           ///< spins for a while, then sleeps: under traffic nearly the latency of kBusyPoll
};
[[nodiscard]] RDMACOMM_API const char* to_text(
    PollingMode mode) noexcept;  ///< "busy poll", "completion channel", "epoll", "adaptive"

/// Options of the polling modes. A value.
struct RDMACOMM_API WaitOptions {
  /// The largest `spin`: one second.
  static constexpr std::chrono::microseconds kMaxSpin{1'000'000};

  /// kBusyPoll, kAdaptive: yields the core once after this number of consecutive empty polls. 0: never. 1024 polls take
  /// some tens of microseconds.
  std::uint32_t yield_every = 1024;
  /// kAdaptive: how long to spin before sleeping; 0..kMaxSpin. Twice the round-trip time is a good choice, because a
  /// sleep and a wake-up take longer than that on most machines.
  std::chrono::microseconds spin{50};

  /// kInvalidArgument: `spin` outside its range.
  [[nodiscard]] Status validate() const;
};

/// Counters of waiting. A value.
struct RDMACOMM_API WaitCounts {
  std::uint64_t waits = 0;            ///< times when no completion was there, and a wait began
  std::uint64_t slept = 0;            ///< waits in which the thread slept at least once
  std::uint64_t sleeps = 0;           ///< times when the thread asked the system to sleep
  std::chrono::nanoseconds asleep{};  ///< total time asleep

  /// Share of the waits that ended without sleeping, 0..1; 1 without any waits.
  [[nodiscard]] double spun_share() const noexcept {
    return waits == 0 ? 1 : 1 - static_cast<double>(slept) / static_cast<double>(waits);
  }
  /// Adds the counters of `other`, for a sum over several queues.
  WaitCounts& operator+=(const WaitCounts& other) noexcept {
    waits += other.waits;
    slept += other.slept;
    sleeps += other.sleeps;
    asleep += other.asleep;
    return *this;
  }
};

}  // namespace rdmacomm
