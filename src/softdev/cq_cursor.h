// cq_cursor.h - a completion queue read by the calls ibv_start_poll, ibv_next_poll and ibv_end_poll.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <mutex>

namespace rdmacomm::softdev {

/// The completion that the calls ibv_wc_read_* are about. From a start that found one to the end, one thread has it.
class CqCursor {
 public:
  /// What can be asked for (IBV_WC_EX_WITH_*). Nobody looks at a clock when a request completes.
  static constexpr std::uint64_t kFields = IBV_WC_STANDARD_FLAGS;

  /// Sets the function pointers of a completion queue, those of `fields`.
  static void install(ibv_cq_ex& cq, std::uint64_t fields) noexcept;

  [[nodiscard]] const ibv_wc& at() const noexcept { return wc_; }
  int start(ibv_cq_ex& cq);
  int next(ibv_cq_ex& cq);
  void end() { mutex_.unlock(); }

 private:
  std::mutex mutex_;
  ibv_wc wc_{};
};

}  // namespace rdmacomm::softdev
