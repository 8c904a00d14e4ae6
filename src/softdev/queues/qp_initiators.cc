#include "softdev/queues/qp_initiators.h"

#include <fcntl.h>
#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>

#include "softdev/memory/stragglers.h"
#include "softdev/queues/premises.h"
#include "softdev/queues/soft_cq.h"
#include "softdev/queues/soft_qp.h"
#include "softdev/queues/soft_srq.h"
#include "softdev/queues/soft_xrcd.h"
#include "softdev/shared/hazard.h"

namespace rdmacomm::softdev {

QpInitiators::QpInitiators(SoftQp& qp) noexcept : qp_(qp), shared_(*qp.view_.shared), srq_(qp.srq_) {}

void QpInitiators::end_service() noexcept {
  const std::scoped_lock guard(mutex_);
  destroyed_ = true;
}

void QpInitiators::notify_receiver() noexcept {
  const std::scoped_lock guard(mutex_);
  if (!destroyed_) qp_.recv_queue_.notify(true);
}

void QpInitiators::make_up_for_event(std::vector<const SoftCq*>& done) noexcept {
  const std::scoped_lock guard(mutex_);
  if (destroyed_ || std::ranges::find(done, &qp_.recv_queue_) != done.end()) return;
  qp_.recv_queue_.make_up_for_event();
  done.push_back(&qp_.recv_queue_);
}

bool QpInitiators::wait() noexcept {
  const Clock::time_point deadline = Clock::now() + kLongestRequest;
  await_visibility();
  return wait_seen(deadline);
}

bool QpInitiators::wait_seen(Clock::time_point deadline, Wait how) noexcept {
  // If an initiator dies meanwhile, the serving thread notices it and takes its flag down.
  const bool known = left_behind_.load(std::memory_order_relaxed);
  std::chrono::microseconds pause{0};
  std::optional<Clock::time_point> writes_end;
  for (int looks = 0;; ++looks) {
    const std::uint32_t flag = shared_.busy.load(std::memory_order_seq_cst);
    if (flag == 0) return true;
    if (looks < 100) {
      sched_yield();
      continue;
    }
    const Clock::time_point now = Clock::now();
    const bool over = known || now >= deadline;
    if (over && (how == Wait::kBounded || !may_write_still(flag, now, writes_end))) break;
    pause = std::min(pause + std::chrono::microseconds(10), std::chrono::microseconds(1000));
    std::this_thread::sleep_for(pause);
  }
  qp_.premises_.stragglers.add(qp_.as_initiator_target());
  qp_.premises_.threads.wake_retrier();
  return false;
}

/// True if an initiator with this flag, which did not finish in time, may still write to memory by its address. Its
/// call is taken back. Then the call is either in progress in the kernel and ends, or it never begins. `end` is the
/// time when that is certain, for one wait. A call that is given later needs no wait, because its initiator checks
/// again if it may write.
bool QpInitiators::may_write_still(std::uint32_t flag, Clock::time_point now,
                                   std::optional<Clock::time_point>& end) noexcept {
  if ((flag & kInOwnProcess) != 0) return true;
  if ((flag & kByAddress) == 0) return false;
  if (!end) {
    AddressWrite& write = shared_.write;
    if (write.is_given()) {
      // In this order: another thread that sees the write taken back also sees until when to wait.
      writes_end_.store(now + kLongestCall, std::memory_order_seq_cst);
      write.take_back();
    }
    end = writes_end_.load(std::memory_order_seq_cst);
  }
  return now < *end;
}

bool QpInitiators::wait_until_idle(Wait how) noexcept {
  const Clock::time_point deadline = Clock::now() + kLongestRequest;
  await_visibility();
  return wait_until_seen_idle(deadline, how);
}

bool QpInitiators::wait_until_seen_idle(Clock::time_point deadline, Wait how) noexcept {
  const bool idle = wait_seen(deadline, how);
  qp_.send_lock_.wait_until_left();
  const std::scoped_lock guard(mutex_);
  if (destroyed_) return idle;  // no poll accesses it any more, and the completion queues may not exist
  qp_.send_queue_.wait_for_poll();
  qp_.recv_queue_.wait_for_poll();
  return idle;
}

bool QpInitiators::forget(std::uint32_t initiator_qpn) noexcept {
  const std::atomic<std::uint32_t>& at_work = takes_turns(qp_.service_) ? shared_.busy : qp_.initiator_qpn_;
  if ((at_work.load(std::memory_order_acquire) & ~(kByAddress | kInOwnProcess)) != initiator_qpn) return false;
  {
    const std::scoped_lock guard(mutex_);
    if (is_busy()) withdraw_unpublished();
    if (srq_ != nullptr) srq_->forget_initiator(qp_.qp_base.qp_num, shared_);
  }
  shared_.busy.store(0, std::memory_order_seq_cst);
  return true;
}

/// The initiator that was at work here has died: the next one reuses the slot that it had begun to fill.
void QpInitiators::withdraw_unpublished() noexcept {
  InSlot& last = qp_.view_.slot(shared_.taken - 1);
  // Before the first message, the sequence is 0, too.
  if (last.head.load(std::memory_order_acquire).sequence == shared_.taken) return;
  --shared_.taken;
  if (qp_.srq_ != nullptr && shared_.claimed == 0) shared_.claimed = SharedReceive::entry(last) + 1;
}

void QpInitiators::raise_srq_limit() {
  const std::scoped_lock guard(mutex_);
  if (srq_ != nullptr) srq_->raise(IBV_EVENT_SRQ_LIMIT_REACHED);
}

bool QpInitiators::describe(Answer& answer) {
  const std::scoped_lock guard(mutex_);
  if (destroyed_) return false;
  const std::byte* const start = reinterpret_cast<const std::byte*>(&shared_);
  answer.qp_offset = qp_.block_.offset + static_cast<std::size_t>(start - qp_.block_.mapping.data());
  answer.busy_address = reinterpret_cast<std::uint64_t>(&shared_.busy);
  answer.recv_cq_offset = qp_.recv_queue_.segment_offset();
  answer.pd = qp_.pd_number_;
  answer.recv_entries = qp_.view_.mask + 1;
  answer.max_recv_sge = qp_.capabilities_.max_recv_sge;
  if (qp_.srq_ != nullptr) {
    answer.srq_entries = qp_.srq_->entry_count();
    answer.srq_max_sge = qp_.srq_->max_sge();
    answer.srq_pd = qp_.srq_->pd_number();
    answer.srq_offset = qp_.srq_->segment_offset();
  }
  if (qp_.xrc_domain_ != nullptr) answer.xrc_domain = qp_.xrc_domain_->identity();
  const SoftChannel* const channel = qp_.recv_queue_.completion_channel();
  if (channel != nullptr) answer.channel = channel->number;
  return true;
}

int QpInitiators::channel_descriptor(UniqueFd& wake_fd) {
  const std::scoped_lock guard(mutex_);
  const SoftChannel* const channel = destroyed_ ? nullptr : qp_.recv_queue_.completion_channel();
  if (channel == nullptr) return ENOENT;
  wake_fd.reset(fcntl(channel->fd, F_DUPFD_CLOEXEC, 0));
  return wake_fd ? 0 : errno;
}

void QpInitiators::settle_after_destruction() noexcept {
  const std::scoped_lock guard(mutex_);
  if (!destroyed_) return;
  if (srq_ != nullptr) qp_.return_shared_receives();
  srq_ = nullptr;
}

void QpInitiators::forget_shared_receives(const ibv_srq& queue) noexcept {
  const std::scoped_lock guard(mutex_);
  if (srq_ == &queue) srq_ = nullptr;
}

}  // namespace rdmacomm::softdev
