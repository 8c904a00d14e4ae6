// soft_cq.h - completion queues and completion channels.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "base/spin_lock.h"
#include "softdev/common/event_queue.h"
#include "softdev/memory/soft_pd.h"
#include "softdev/queues/arrival_order.h"
#include "softdev/queues/cq_cursor.h"
#include "softdev/queues/reordered_completions.h"
#include "softdev/queues/sender_news.h"
#include "softdev/shared/completion_event.h"
#include "softdev/shared/layout.h"
#include "softdev/shared/shared_file.h"

namespace rdmacomm::softdev {

class SoftCq;
class SoftQp;
class TcpService;
struct Premises;

/// A completion channel: an eventfd in semaphore mode. Its count is the number of waiting events.
struct SoftChannel : ibv_comp_channel {
  std::uint32_t number = 0;  ///< unique in its context, not reused
  std::mutex mutex;
  std::vector<SoftCq*> queues;

  /// Takes the event of a queue of this channel that has fired. If an event was read but no queue has fired (see
  /// fire_for_the_dead()), returns any queue: the application polls it and finds no completion. nullptr: no queue.
  [[nodiscard]] SoftCq* take_event();
};

/// A completion queue. It contains no completions: send completions stay in the send queues of its queue pairs, receive
/// completions in their inbound slots. poll() merges them. So two processes never share a completion queue, and no
/// completion is lost. If more completions wait than its depth, it fails like the queue of a hardware device that has
/// no room.
/// Receive completions come in the order in which their messages arrived, no matter at which queue pair: see
/// ArrivalOrder. Send completions come in the order of each queue pair.
/// Threads: any.
class SoftCq : public ibv_cq_ex {
 public:
  SoftCq(const Premises& premises, SharedBlock block, int depth, void* cq_context, SoftChannel* completion_channel);
  SoftCq(const SoftCq&) = delete;
  SoftCq& operator=(const SoftCq&) = delete;

  /// The first member of an ibv_cq_ex is an ibv_cq.
  [[nodiscard]] static SoftCq& from(ibv_cq* cq) noexcept {
    return *static_cast<SoftCq*>(reinterpret_cast<ibv_cq_ex*>(cq));
  }
  [[nodiscard]] ibv_cq* verbs() noexcept { return ibv_cq_ex_to_cq(this); }
  /// For ibv_start_poll and the related calls.
  [[nodiscard]] CqCursor& cursor() noexcept { return cursor_; }

  /// Returns the number of completions found; -1: the queue has overrun.
  int poll(int count, ibv_wc* out) noexcept;
  /// Overruns if all completions of the queue pair that it has are polled. Returns false: not yet.
  [[nodiscard]] bool overrun_if_polled(const ibv_qp* sender) noexcept;
  /// Returns completions in another order from now on, as the faults of the queue pairs say: see QpFaults::next_hold().
  void reorder() noexcept { special_ = Special::kReorders; }
  /// Returns  0; EINVAL: more than `depth` completions wait.
  int resize(int depth) noexcept;
  int arm(bool solicited_only) noexcept;
  /// Call this after completions were published. Wakes the sleeping thread if the queue is armed for them.
  void notify(bool solicited) noexcept {
    if (channel != nullptr) fire(*shared_, channel->fd, solicited);
  }

  // For a receiver that fails. They may be called while a poll is in progress.
  /// The stamp of its flushed receives.
  [[nodiscard]] std::uint64_t draw_failure_stamp() noexcept { return draw_stamp(*shared_, best_stamping()); }
  /// Call it after the state has changed.
  void note_failure() noexcept { arrivals_.note_failure(); }

  void attach_sender(SoftQp& qp);
  void attach_receiver(SoftQp& qp);
  /// It never overruns: the application takes care of that (IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN).
  void ignore_overrun() noexcept { may_overrun_ = false; }
  /// After this returns, poll() does not access `qp`; its completions are dropped.
  void detach(SoftQp& qp);
  [[nodiscard]] bool in_use();
  /// Waits until each poll() that is in progress has returned.
  void wait_for_poll() { const std::scoped_lock guard(lock_); }

  /// An initiator with access to this queue has died: see fire_for_the_dead().
  void make_up_for_event() noexcept {
    if (channel != nullptr) fire_for_the_dead(*shared_, channel->fd);
  }
  /// Takes one fired event. Returns false: none waits.
  [[nodiscard]] bool take_event() noexcept;
  /// Counts an event as taken although the queue has not fired.
  void take_spurious_event() noexcept;
  void acknowledge(unsigned count);
  /// Drops the events that nobody has taken. Then waits until all taken events are acknowledged.
  void retire_events();

  [[nodiscard]] std::uint64_t segment_offset() const noexcept { return block_.offset; }
  [[nodiscard]] const SoftChannel* completion_channel() const noexcept {
    return static_cast<const SoftChannel*>(channel);
  }
  [[nodiscard]] SharedBlock take_block() noexcept { return std::move(block_); }

  EventSource events;
  PdUse parent_domain;  ///< if the application named one

 private:
  /// The reason why poll() does more than to collect completions.
  enum class Special : std::uint8_t { kNone, kReorders, kFailed };

  int poll_here(int count, ibv_wc* out) noexcept;
  int poll_sends(int count, ibv_wc* out) noexcept;
  int poll_receives(int count, ibv_wc* out) noexcept;
  /// True if more completions wait than the depth. They are counted only if their maximum exceeds the depth.
  [[nodiscard]] bool overruns_locked() const noexcept {
    return possible_ > static_cast<std::uint64_t>(cqe) && count_waiting_locked(cqe + 1) > cqe;
  }
  void count_possible_locked();
  void note_receivers_locked();
  void fail_locked() noexcept;
  [[nodiscard]] int count_waiting_locked(int enough) const noexcept;

  TcpService& tcp_;
  EventQueue& event_queue_;
  CqCursor cursor_;
  SharedBlock block_;
  CqShared* const shared_;
  SpinLock lock_;
  std::vector<SoftQp*> senders_;
  std::unique_ptr<SenderNews> news_;  // of the senders; nullptr: there were never many
  std::vector<SoftQp*> receivers_;
  ArrivalOrder arrivals_;       // of the receivers, if there are several
  std::uint64_t possible_ = 0;  // maximum number of completions that can wait at a time
  bool may_overrun_ = true;
  Special special_ = Special::kNone;
  ReorderedCompletions reordered_;  // unless it has failed, with Special::kReorders
  bool receives_first_ = false;     // at the next poll
  std::size_t next_ = 0;            // sender at which the next poll begins, so that each gets its turn
  std::uint32_t events_taken_ = 0;  // guarded by ibv_cq::mutex, like comp_events_completed
};

}  // namespace rdmacomm::softdev
