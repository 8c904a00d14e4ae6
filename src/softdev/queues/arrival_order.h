// arrival_order.h - polls the receives of several queue pairs in the order in which they arrived.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "softdev/shared/arrival_stamp.h"

namespace rdmacomm::softdev {

class SoftQp;

/// The receives of the queue pairs of one completion queue. Each message has a stamp, see draw_stamp(), and each queue
/// pair's messages are in the order of their stamps.
///
/// A message may arrive at a queue pair that a poll has just looked at, and a later one at a queue pair that it has not
/// looked at yet. So a message is delivered only if all queue pairs were looked at again after it had been seen, and no
/// earlier one was found. Only stamps that a peer has forged can cause an exception, see poll().
///
/// Threads: one at a time, except for note_failure().
class ArrivalOrder {
 public:
  /// Call it when the queue pairs change. From now on, their messages get stamps.
  /// stamping  how; all calls name the same
  void set_queue_pairs(std::span<SoftQp* const> queue_pairs, Stamping stamping);
  /// A queue pair has entered ERR. Call it after the state has changed.
  void note_failure() noexcept { some_failed_.store(true, std::memory_order_seq_cst); }
  /// Returns the number of completions, at most `count`. If it is less, all that waited when the call began were
  /// returned.
  int poll(int count, ibv_wc* out) noexcept;

 private:
  struct Source {
    SoftQp* queue_pair = nullptr;
    int known = 0;  // number of its receives that were seen
  };
  /// The first known receive of a source.
  struct First {
    std::uint64_t stamp = 0;
    std::size_t at = 0;  // index of the source
  };

  [[nodiscard]] std::uint64_t look() noexcept;
  [[nodiscard]] std::uint64_t look_at(std::size_t at) noexcept;
  int deliver(int count, ibv_wc* out) noexcept;

  std::vector<Source> sources_;
  std::vector<NextMessage> next_;          // of each source; side by side, so that a look is fast with many of them
  std::vector<First> firsts_;              // of the sources of which a receive is known, in no order
  std::uint64_t end_ = 0;                  // known receives with earlier stamps can be delivered
  std::atomic<bool> some_failed_ = false;  // a queue pair may be in ERR
};

}  // namespace rdmacomm::softdev
