// soft_cq.h - completion queues and completion channels.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <mutex>
#include <vector>

#include "base/spin_lock.h"
#include "softdev/common/event_queue.h"
#include "softdev/queues/cq_cursor.h"
#include "softdev/shared/completion_event.h"
#include "softdev/shared/layout.h"
#include "softdev/shared/shared_file.h"

namespace rdmacomm::softdev {

class SoftCq;
class SoftQp;
class TcpService;
struct Premises;

/// A completion channel: an eventfd in semaphore mode, one count for each event that waits.
struct SoftChannel : ibv_comp_channel {
  std::uint32_t number = 0;  ///< no other channel of its context has it, or had it
  std::mutex mutex;
  std::vector<SoftCq*> queues;

  /// A queue of this channel that has fired, its event taken. Where none has, although an event was read (see fire_for_the_dead()), it
  /// is for any: the application polls it and finds nothing. nullptr: there is none.
  [[nodiscard]] SoftCq* take_event();
};

/// A completion queue. It holds no completions itself: they lie in the queue pairs that report to it, send
/// completions in their send queues, receive completions in their inbound slots, and poll() merges them. So no
/// two processes ever share a queue, and none is ever lost: where more wait than the queue has been made for, it fails as a
/// device's does that has nowhere to put them.
/// Threads: any.
class SoftCq : public ibv_cq_ex {
 public:
  SoftCq(const Premises& premises, SharedBlock block, int depth, void* cq_context, SoftChannel* completion_channel);
  SoftCq(const SoftCq&) = delete;
  SoftCq& operator=(const SoftCq&) = delete;

  /// An ibv_cq is what an ibv_cq_ex begins with.
  [[nodiscard]] static SoftCq& from(ibv_cq* cq) noexcept {
    return *static_cast<SoftCq*>(reinterpret_cast<ibv_cq_ex*>(cq));
  }
  [[nodiscard]] ibv_cq* verbs() noexcept { return ibv_cq_ex_to_cq(this); }
  /// For the calls ibv_start_poll and so on.
  [[nodiscard]] CqCursor& cursor() noexcept { return cursor_; }

  /// How many it found; -1: the queue has overrun.
  int poll(int count, ibv_wc* out) noexcept;
  /// 0; EINVAL: more completions than that wait.
  int resize(int depth) noexcept;
  int arm(bool solicited_only) noexcept;
  /// Called after completions were published: wakes the sleeper if the queue is armed for them.
  void notify(bool solicited) noexcept {
    if (channel != nullptr) fire(*shared_, channel->fd, solicited);
  }

  void attach_sender(SoftQp& qp);
  void attach_receiver(SoftQp& qp);
  /// It never overruns: the application says that it takes care (IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN).
  void ignore_overrun() noexcept { may_overrun_ = false; }
  /// From the return on poll() does not look at `qp`; its completions are gone.
  void detach(SoftQp& qp);
  [[nodiscard]] bool in_use();
  /// Returns when no poll() that was under way is any more.
  void wait_for_poll() { const std::scoped_lock guard(lock_); }

  /// An initiator that could reach this queue has died: see fire_for_the_dead().
  void make_up_for_event() noexcept {
    if (channel != nullptr) fire_for_the_dead(*shared_, channel->fd);
  }
  /// Takes one fired event; false: none waits.
  [[nodiscard]] bool take_event() noexcept;
  /// An event that did not fire is given out.
  void take_spurious_event() noexcept;
  void acknowledge(unsigned count);
  /// Drops the events nobody took and waits until all taken ones are acknowledged.
  void retire_events();

  [[nodiscard]] std::uint64_t segment_offset() const noexcept { return block_.offset; }
  [[nodiscard]] const SoftChannel* completion_channel() const noexcept {
    return static_cast<const SoftChannel*>(channel);
  }
  [[nodiscard]] SharedBlock take_block() noexcept { return std::move(block_); }

  EventSource events;

 private:
  int poll_here(int count, ibv_wc* out) noexcept;
  /// More completions wait than there is room for. They are counted only where so many can wait at all.
  [[nodiscard]] bool overruns_locked() const noexcept {
    return possible_ > static_cast<std::uint64_t>(cqe) && count_waiting_locked(cqe + 1) > cqe;
  }
  void count_possible_locked();
  void fail_locked() noexcept;
  [[nodiscard]] int count_waiting_locked(int enough) const noexcept;

  TcpService& tcp_;
  EventQueue& event_queue_;
  CqCursor cursor_;
  SharedBlock block_;
  CqShared* const shared_;
  SpinLock lock_;
  std::vector<SoftQp*> senders_;
  std::vector<SoftQp*> receivers_;
  std::uint64_t possible_ = 0;  // completions that all of them can have at a time
  bool may_overrun_ = true;
  bool failed_ = false;
  std::size_t next_ = 0;            // where the next poll starts, so that no queue pair starves
  std::uint32_t events_taken_ = 0;  // guarded by ibv_cq::mutex, as is comp_events_completed
};

}  // namespace rdmacomm::softdev
