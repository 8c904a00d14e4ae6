#include "rdmacomm/channel/completion_poller.h"

#include <sched.h>

#include <algorithm>
#include <mutex>

#include "base/hot_inline.h"
#include "channel/request_ring.h"
#include "rdmacomm/channel/receive_pool.h"

namespace rdmacomm {
namespace {

constexpr std::size_t kBatch = 16;  // completions taken from the device at a time

}  // namespace

/// Who changes the channels goes before who polls, and would hardly ever find the lock free.
class CompletionPoller::Change {
 public:
  explicit Change(CompletionPoller& poller) noexcept : poller_(poller) {
    poller_.changes_.fetch_add(1, std::memory_order_relaxed);
    poller_.lock_.lock();
  }
  Change(const Change&) = delete;
  Change& operator=(const Change&) = delete;
  ~Change() {
    poller_.lock_.unlock();
    poller_.changes_.fetch_sub(1, std::memory_order_relaxed);
  }

 private:
  CompletionPoller& poller_;
};

void CompletionPoller::attach(RDMAChannel& channel) {
  const std::uint32_t qpn = channel.adapter().address().qpn;
  const Change change(*this);
  by_qpn_.insert(std::ranges::lower_bound(by_qpn_, qpn, {}, &Entry::qpn), {qpn, &channel});
  tells_every_end_ = channel.adapter().device().limits().flushes_in_error;
}

void CompletionPoller::detach(RDMAChannel& channel) {
  const Change change(*this);
  std::erase_if(by_qpn_, [&](const Entry& each) { return each.channel == &channel; });
}

// As RDMAChannel::poll_queues().
RDMACOMM_HOT_INLINE std::error_code CompletionPoller::take(std::span<Completion> out, std::size_t& count) noexcept {
  while (count < out.size()) {
    ibv_wc wcs[kBatch];  // written by the device as far as used
    const int asked = static_cast<int>(std::min(out.size() - count, kBatch));
    const int got = ibv_poll_cq(cq_.get(), asked, wcs);
    if (got < 0) [[unlikely]]
      return Errc::kCompletionFailed;
    for (int i = 0; i < got; ++i) {
      const auto found = std::ranges::lower_bound(by_qpn_, wcs[i].qp_num, {}, &Entry::qpn);
      if (found == by_qpn_.end() || found->qpn != wcs[i].qp_num) {
        drop(wcs[i]);
      } else if (found->channel->complete(wcs[i], out[count])) {
        ++count;
      }
    }
    if (got < asked) break;
  }
  return no_error_;
}

std::error_code CompletionPoller::poll(std::span<Completion> out, std::size_t& count, std::uint32_t times) noexcept {
  count = 0;
  if (out.empty()) return no_error_;
  if (changes_.load(std::memory_order_relaxed) != 0) [[unlikely]]
    sched_yield();
  const std::scoped_lock lock(lock_);
  std::error_code failed = no_error_;
  do {
    failed = take(out, count);
  } while (!failed && count == 0 && --times != 0 && changes_.load(std::memory_order_relaxed) == 0);
  if (tells_every_end_ || failed || count > 0) [[likely]]
    return failed;
  return poll_for_end(out, count);
}

// As RDMAChannel::poll_for_end().
[[gnu::noinline]] std::error_code CompletionPoller::poll_for_end(std::span<Completion> out,
                                                                 std::size_t& count) noexcept {
  for (const Entry& each : by_qpn_) each.channel->look_for_end();
  const std::error_code failed = take(out, count);
  if (failed || count > 0) return failed;
  for (const Entry& each : by_qpn_) each.channel->settle();
  return no_error_;
}

// The channel was detached: it is nobody's any more.
void CompletionPoller::drop(const ibv_wc& wc) noexcept {
  if (!is_pooled_request(wc.wr_id)) return;
  ReceivePool::Receive* receive = &ReceivePool::take(wc.wr_id);
  (void)receive->pool->post({&receive, 1});  // where that fails, the device says so to everybody
}

}  // namespace rdmacomm
