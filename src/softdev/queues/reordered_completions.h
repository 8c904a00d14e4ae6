// reordered_completions.h - returns the completions of several queue pairs in another order.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace rdmacomm::softdev {

class SoftQp;

/// The completions of one completion queue. Those of one send queue stay in order, and so do those of one receive queue.
/// Others change places, as the faults of their queue pairs say. It holds at most one completion of each queue. A poll
/// that returns fewer completions than it may has returned all. So no completion is held while the application waits.
/// Threads: one at a time, the holder of the completion queue's lock.
class ReorderedCompletions {
 public:
  void add(SoftQp& qp, bool is_receive) { sources_.push_back({&qp, is_receive, false, 0, {}}); }
  /// Drops the completions of the queue pair.
  void remove(const SoftQp& qp);
  /// Returns the number of completions, at most `count`.
  int poll(int count, ibv_wc* out) noexcept;
  /// True if it holds a completion.
  [[nodiscard]] bool has_any() const noexcept;

 private:
  /// A send queue or a receive queue, with its next completion.
  struct Source {
    SoftQp* queue_pair;
    bool is_receive;
    bool is_full;        ///< `next` has a completion
    std::uint32_t hold;  ///< number of completions of other queues that come first
    ibv_wc next;
  };

  static void fill(Source& source) noexcept;

  std::vector<Source> sources_;
  std::size_t last_ = 0;  // the source of the last completion, so that each gets its turn
};

}  // namespace rdmacomm::softdev
