// cq_cursor.h - a completion queue read by the calls ibv_start_poll, ibv_next_poll and ibv_end_poll.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <mutex>

namespace rdmacomm::softdev {

/// The completion that the calls ibv_wc_read_* are about. From a start that found one to the end, one thread has it.
class CqCursor {
 public:
  /// What can be asked for (IBV_WC_EX_WITH_*). Nobody looks at a clock when a request completes: a completion's time is
  /// when it was polled.
  static constexpr std::uint64_t kTimes =
      IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
  static constexpr std::uint64_t kFields = IBV_WC_STANDARD_FLAGS | kTimes;

  /// Sets the function pointers of a completion queue, those of `fields`.
  void install(ibv_cq_ex& cq, std::uint64_t fields) noexcept;

  [[nodiscard]] const ibv_wc& at() const noexcept { return wc_; }
  /// When it was polled, where that was asked for: by the device's clock, and of the day.
  [[nodiscard]] std::uint64_t ticks() const noexcept { return ticks_; }
  [[nodiscard]] std::uint64_t wall_nanoseconds() const noexcept { return wall_nanoseconds_; }
  int start(ibv_cq_ex& cq);
  int next(ibv_cq_ex& cq);
  void end() { mutex_.unlock(); }

 private:
  std::mutex mutex_;
  ibv_wc wc_{};
  std::uint64_t times_ = 0;  // those of kTimes that were asked for
  std::uint64_t ticks_ = 0;
  std::uint64_t wall_nanoseconds_ = 0;
};

}  // namespace rdmacomm::softdev
