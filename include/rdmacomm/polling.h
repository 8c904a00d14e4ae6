// polling.h - how completions are waited for.
// Layer: channel.   Which way when: docs/threading.md "Waiting"
#pragma once

#include <chrono>
#include <cstdint>

#include "rdmacomm/result.h"

namespace rdmacomm {

/// How completions are waited for.
enum class PollingMode : std::uint8_t {
  kBusyPoll,           ///< a core spins: lowest latency
  kCompletionChannel,  ///< the thread sleeps until the device wakes it: lowest use of CPU
  kEpoll,              ///< the same by epoll: further descriptors can be waited for, and the whole has a descriptor
  kAdaptive,           ///< spins for a while, then sleeps: nearly the latency of the first while there is traffic
};
[[nodiscard]] RDMACOMM_API const char* to_text(
    PollingMode mode) noexcept;  ///< "busy poll", "completion channel", "epoll", "adaptive"

/// What can be chosen about a way to wait. A value.
struct RDMACOMM_API WaitOptions {
  static constexpr std::chrono::microseconds kMaxSpin{1'000'000};

  /// kBusyPoll, kAdaptive: yields the core once after this many empty polls in a row. 0: never. 1024 polls take some
  /// tens of microseconds.
  std::uint32_t yield_every = 1024;
  /// kAdaptive: how long to spin before sleeping; 0..kMaxSpin. Twice the time of a round trip is a good choice: what a
  /// sleep and a wake-up cost is more than that on most machines.
  std::chrono::microseconds spin{50};

  /// kInvalidArgument: `spin` outside its range.
  [[nodiscard]] Status validate() const;
};

/// What waiting has come to so far. A value.
struct RDMACOMM_API WaitCounts {
  std::uint64_t waits = 0;            ///< times when there was nothing, and waiting began
  std::uint64_t slept = 0;            ///< of those, in which the thread slept, once or more often
  std::uint64_t sleeps = 0;           ///< times when the thread asked the system to put it to sleep
  std::chrono::nanoseconds asleep{};  ///< how long it was, in all

  /// Share of the waits that ended without sleeping, 0..1; 1 if there were none.
  [[nodiscard]] double spun_share() const noexcept {
    return waits == 0 ? 1 : 1 - static_cast<double>(slept) / static_cast<double>(waits);
  }
  WaitCounts& operator+=(const WaitCounts& other) noexcept {
    waits += other.waits;
    slept += other.slept;
    sleeps += other.sleeps;
    asleep += other.asleep;
    return *this;
  }
};

}  // namespace rdmacomm
