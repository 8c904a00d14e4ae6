#include "softdev/queues/soft_cq.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/hot_inline.h"
#include "softdev/queues/premises.h"
#include "softdev/queues/soft_qp.h"
#include "softdev/queues/soft_srq.h"
#include "softdev/tcp/tcp_service.h"

namespace rdmacomm::softdev {

SoftCq* SoftChannel::take_event() {
  const std::scoped_lock lock(mutex);
  const auto fired = std::ranges::find_if(queues, [](SoftCq* cq) { return cq->take_event(); });
  if (fired != queues.end()) return *fired;
  if (queues.empty()) return nullptr;
  queues.front()->take_spurious_event();
  return queues.front();
}

SoftCq::SoftCq(const Premises& premises, SharedBlock block, int depth, void* user_context,
               SoftChannel* completion_channel)
    : ibv_cq_ex{},
      tcp_(premises.tcp),
      event_queue_(premises.events),
      block_(std::move(block)),
      shared_(reinterpret_cast<CqShared*>(block_.mapping.data())) {
  context = &premises.verbs;
  channel = completion_channel;
  cq_context = user_context;
  cqe = depth;
  pthread_mutex_init(&mutex, nullptr);
  pthread_cond_init(&cond, nullptr);
}

int SoftCq::poll(int count, ibv_wc* out) noexcept {
  const int found = poll_here(count, out);
  if (found != 0 || count == 0 || !tcp_.active()) return found;
  return tcp_.poll() ? poll_here(count, out) : 0;
}

RDMACOMM_HOT_INLINE int SoftCq::poll_sends(int count, ibv_wc* out) noexcept {
  if (news_ != nullptr) [[unlikely]]
    return news_->poll(count, out);
  const std::size_t queues = senders_.size();
  int found = 0;
  if (next_ >= queues) next_ = 0;  // queue pairs were detached since
  std::size_t last = next_;
  for (std::size_t i = 0; i < queues && found < count; ++i) {
    const std::size_t at = next_ + i < queues ? next_ + i : next_ + i - queues;
    const int of_this = senders_[at]->poll_sends(count - found, out + found);
    if (of_this > 0) last = at;
    found += of_this;
  }
  // Starts after the last queue pair with completions. If it started one further each time, a queue pair after many
  // idle ones would be first more often than others.
  next_ = last + 1;
  return found;
}

int SoftCq::poll_receives(int count, ibv_wc* out) noexcept {
  if (count <= 0 || receivers_.empty()) return 0;
  if (receivers_.size() > 1) return arrivals_.poll(count, out);
  return receivers_.front()->poll_receives(count, out);
}

int SoftCq::poll_here(int count, ibv_wc* out) noexcept {
  const std::scoped_lock guard(lock_);
  if (may_overrun_ && overruns_locked()) [[unlikely]]
    fail_locked();
  if (special_ != Special::kNone) [[unlikely]]
    return special_ == Special::kFailed ? -1 : reordered_.poll(count, out);
  if (std::exchange(receives_first_, false)) [[unlikely]] {
    const int found = poll_receives(count, out);
    return found + poll_sends(count - found, out + found);
  }
  const int found = poll_sends(count, out);
  // Otherwise an application that polls as often as it sends would get no receives.
  receives_first_ = found == count && count > 0;
  return found + poll_receives(count - found, out + found);
}

/// Counts the waiting completions; may stop at `enough`.
int SoftCq::count_waiting_locked(int enough) const noexcept {
  int waiting = 0;
  for (const SoftQp* const qp : senders_) {
    if (waiting < enough) waiting += qp->waiting_sends(enough - waiting);
  }
  for (const SoftQp* const qp : receivers_) {
    if (waiting < enough) waiting += qp->waiting_receives(enough - waiting);
  }
  return waiting;
}

void SoftCq::fail_locked() noexcept {
  if (std::exchange(special_, Special::kFailed) == Special::kFailed) return;
  ibv_async_event event{};
  event.event_type = IBV_EVENT_CQ_ERR;
  event.element.cq = verbs();
  event_queue_.push(event, events);
  for (SoftQp* const qp : senders_) qp->lose_completions();
  for (SoftQp* const qp : receivers_) qp->lose_completions();
}

bool SoftCq::overrun_if_polled(const ibv_qp* sender) noexcept {
  const std::scoped_lock guard(lock_);
  const auto found = std::ranges::find_if(senders_, [sender](SoftQp* one) { return one->verbs() == sender; });
  if (found == senders_.end()) return true;  // it was destroyed or reset since
  if ((*found)->waiting_sends(1) != 0 || reordered_.has_any()) return false;
  fail_locked();
  return true;
}

int SoftCq::resize(int depth) noexcept {
  const std::scoped_lock guard(lock_);
  if (count_waiting_locked(depth + 1) > depth) return EINVAL;
  cqe = depth;  // the queue pairs have room for all of their completions
  return 0;
}

int SoftCq::arm(bool solicited_only) noexcept {
  if (channel == nullptr) return 0;  // like the hardware drivers: nothing receives the event
  const std::uint32_t wanted = solicited_only ? CqShared::kSolicitedOnly : CqShared::kAny;
  // A queue that is armed for any completion stays so if it is also armed for solicited ones.
  std::uint32_t armed = shared_->armed.load(std::memory_order_relaxed);
  while (armed < wanted && !shared_->armed.compare_exchange_weak(armed, wanted)) {
  }
  // Pairs with the fence in fire(): the caller's next poll sees all completions published before this.
  full_fence();
  if (tcp_.active()) tcp_.polls_end();
  return 0;
}

void SoftCq::attach_sender(SoftQp& qp) {
  const std::scoped_lock guard(lock_);
  senders_.push_back(&qp);
  if (news_ != nullptr) {
    news_->add(qp);
  } else if (senders_.size() > SenderNews::kWorthwhile) {
    news_ = std::make_unique<SenderNews>();
    for (SoftQp* const one : senders_) news_->add(*one);
  }
  reordered_.add(qp, false);
  count_possible_locked();
}

void SoftCq::attach_receiver(SoftQp& qp) {
  const std::scoped_lock guard(lock_);
  receivers_.push_back(&qp);
  reordered_.add(qp, true);
  note_receivers_locked();
  count_possible_locked();
}

void SoftCq::detach(SoftQp& qp) {
  const std::scoped_lock guard(lock_);
  std::erase(senders_, &qp);
  if (news_ != nullptr) news_->remove(qp);
  reordered_.remove(qp);
  std::erase(receivers_, &qp);
  note_receivers_locked();
  count_possible_locked();
}

void SoftCq::note_receivers_locked() {
  if (receivers_.size() > 1) return arrivals_.set_queue_pairs(receivers_, best_stamping());
  for (SoftQp* const qp : receivers_) qp->stamp_messages(Stamping::kNone);
}

void SoftCq::count_possible_locked() {
  possible_ = 0;
  for (const SoftQp* const qp : senders_) possible_ += qp->capabilities().max_send_wr;
  std::vector<const SoftSrq*> counted;
  for (const SoftQp* const qp : receivers_) {
    const SoftSrq* const shared = qp->shared_receives();
    if (shared != nullptr && std::ranges::find(counted, shared) != counted.end()) continue;
    if (shared != nullptr) counted.push_back(shared);
    possible_ += shared == nullptr ? qp->capabilities().max_recv_wr : shared->max_wr();
  }
}

bool SoftCq::in_use() {
  const std::scoped_lock guard(lock_);
  return !senders_.empty() || !receivers_.empty();
}

bool SoftCq::take_event() noexcept {
  std::uint32_t waiting = shared_->pending_events.load(std::memory_order_acquire);
  while (waiting != 0) {
    if (!shared_->pending_events.compare_exchange_weak(waiting, waiting - 1)) continue;
    take_spurious_event();
    return true;
  }
  return false;
}

void SoftCq::take_spurious_event() noexcept {
  pthread_mutex_lock(&mutex);
  ++events_taken_;
  pthread_mutex_unlock(&mutex);
}

void SoftCq::acknowledge(unsigned count) {
  pthread_mutex_lock(&mutex);
  comp_events_completed += count;
  pthread_cond_signal(&cond);
  pthread_mutex_unlock(&mutex);
}

void SoftCq::retire_events() {
  for (std::uint32_t left = shared_->pending_events.exchange(0); left != 0; --left) {
    pollfd readable{channel->fd, POLLIN, 0};
    std::uint64_t one = 0;
    if (::poll(&readable, 1, 0) != 1) break;  // a peer may have written a wrong count: stops when no event waits
    (void)!read(channel->fd, &one, sizeof(one));
  }
  pthread_mutex_lock(&mutex);
  while (comp_events_completed != events_taken_) pthread_cond_wait(&cond, &mutex);
  pthread_mutex_unlock(&mutex);
}

}  // namespace rdmacomm::softdev
