// CompletionQueue: taking completions and finding their channels. The hot part.
#include <sched.h>

#include <algorithm>
#include <mutex>

#include "channel/completion_batch.h"
#include "channel/completion_queue.h"
#include "channel/receive_pool_core.h"
#include "channel/request_ring.h"

namespace rdmacomm {

/// Lock for changes of the channels. It has priority over polling, because otherwise it would hardly ever get the lock.
class CompletionQueue::Change {
 public:
  explicit Change(CompletionQueue& queue) noexcept : queue_(queue) {
    queue_.changes_.fetch_add(1, std::memory_order_relaxed);
    queue_.lock_.lock();
  }
  Change(const Change&) = delete;
  Change& operator=(const Change&) = delete;
  ~Change() {
    queue_.lock_.unlock();
    queue_.changes_.fetch_sub(1, std::memory_order_relaxed);
  }

 private:
  CompletionQueue& queue_;
};

void CompletionQueue::attach(ChannelCore& channel) {
  const std::uint32_t qpn = channel.adapter().address().qpn;
  const Change change(*this);
  by_qpn_.insert(std::ranges::lower_bound(by_qpn_, qpn, {}, &Entry::qpn), {qpn, &channel});
}

void CompletionQueue::detach(ChannelCore& channel) {
  const Change change(*this);
  std::erase_if(by_qpn_, [&](const Entry& each) { return each.channel == &channel; });
  last_ = {};
}

// The channel of a completion; nullptr: it was detached. Mostly it is the channel of the previous completion.
RDMACOMM_HOT_INLINE ChannelCore* CompletionQueue::owner_of(const ibv_wc& wc) noexcept {
  if (last_.channel != nullptr && last_.qpn == wc.qp_num) [[likely]]
    return last_.channel;
  const auto found = std::ranges::lower_bound(by_qpn_, wc.qp_num, {}, &Entry::qpn);
  if (found == by_qpn_.end() || found->qpn != wc.qp_num) return nullptr;
  last_ = *found;
  return found->channel;
}

// false: the completion is not passed on.
RDMACOMM_HOT_INLINE bool CompletionQueue::deliver(const ibv_wc& wc, Completion& out) noexcept {
  ChannelCore* const owner = owner_of(wc);
  if (owner != nullptr) [[likely]]
    return owner->complete(wc, out);
  drop(wc);
  return false;
}

// As ChannelCore::poll_more().
[[gnu::noinline]] Errc CompletionQueue::take_more(std::span<Completion> out, std::size_t& count) noexcept {
  return report_more(native_->get(), out, count,
                     [this](const ibv_wc& wc, Completion& into) { return deliver(wc, into); });
}

Polled CompletionQueue::poll(std::span<Completion> out, std::uint32_t times) noexcept {
  if (out.empty()) return {};
  if (changes_.load(std::memory_order_relaxed) != 0) [[unlikely]]
    sched_yield();
  const std::scoped_lock lock(lock_);
  ibv_wc wcs[kCompletionBatch];  // the device fills only the first `got`
  const int asked = batch_for(out.size());
  int got = 0;
  // Only polls in this loop, see CompletionWaiter::polls_at_a_time().
  do {
    got = ibv_poll_cq(native_->get(), asked, wcs);
  } while (got == 0 && times-- > 1 && changes_.load(std::memory_order_relaxed) == 0);
  // Fast path for one completion, which is nearly always the case.
  if (got == 1 && deliver(wcs[0], out[0])) [[likely]]
    return {out.data(), 1};
  if (got == 0 && reports_every_end_) [[likely]]
    return {};
  if (got < 0) return {out.data(), 0, Errc::kCompletionFailed};
  std::size_t count = 0;
  if (got > 1) {
    report_all({wcs, static_cast<std::size_t>(got)}, out, count,
               [this](const ibv_wc& wc, Completion& into) { return deliver(wc, into); });
  }
  if (got == asked && count < out.size()) {
    if (const Errc failed = take_more(out, count); failed != Errc::kOk) return {out.data(), count, failed};
  }
  return reports_every_end_ || count > 0 ? Polled(out.data(), count) : poll_for_end(out);
}

// As ChannelCore::poll_for_end().
[[gnu::noinline]] Polled CompletionQueue::poll_for_end(std::span<Completion> out) noexcept {
  std::size_t count = 0;
  for (const Entry& each : by_qpn_) each.channel->look_for_end();
  const Errc failed = take_more(out, count);
  if (failed == Errc::kOk && count == 0) {
    for (const Entry& each : by_qpn_) each.channel->settle();
  }
  return {out.data(), count, failed};
}

// The channel of the completion was detached. A receive of a pool goes back to the pool.
void CompletionQueue::drop(const ibv_wc& wc) noexcept {
  if (!is_pooled_request(wc.wr_id)) return;
  ReceivePoolCore::Receive* receive = &ReceivePoolCore::take(wc.wr_id);
  (void)receive->pool->post({&receive, 1});  // if this fails, the device reports the error to all
}

}  // namespace rdmacomm
