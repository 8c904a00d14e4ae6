// cq_cursor.h - reads a completion queue with ibv_start_poll, ibv_next_poll and ibv_end_poll.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <mutex>

namespace rdmacomm::softdev {

/// The completion that the ibv_wc_read_* calls read. Between a start that found one and the end, one thread owns it.
class CqCursor {
 public:
  /// The fields that can be requested (IBV_WC_EX_WITH_*). No clock is read when a request completes: the time of a
  /// completion is the time when it was polled.
  static constexpr std::uint64_t kTimes =
      IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
  static constexpr std::uint64_t kFields = IBV_WC_STANDARD_FLAGS | kTimes;

  /// Sets the function pointers of a completion queue, for the requested `fields`.
  void install(ibv_cq_ex& cq, std::uint64_t fields) noexcept;

  [[nodiscard]] const ibv_wc& at() const noexcept { return wc_; }
  /// The time when it was polled, if requested: by the device's clock, and since 1970.
  [[nodiscard]] std::uint64_t ticks() const noexcept { return ticks_; }
  [[nodiscard]] std::uint64_t wall_nanoseconds() const noexcept { return wall_nanoseconds_; }
  int start(ibv_cq_ex& cq);
  int next(ibv_cq_ex& cq);
  void end() { mutex_.unlock(); }

 private:
  std::mutex mutex_;
  ibv_wc wc_{};
  std::uint64_t times_ = 0;  // the requested part of kTimes
  std::uint64_t ticks_ = 0;
  std::uint64_t wall_nanoseconds_ = 0;
};

}  // namespace rdmacomm::softdev
