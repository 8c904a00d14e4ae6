// Polling: the second hot part of a channel. No allocation, lock, log, string or system call in this file.
#include <algorithm>

#include "base/hot_inline.h"
#include "channel/channel_core.h"
#include "channel/completion_batch.h"
#include "channel/receive_pool_core.h"
#include "channel/request_ring.h"
#include "verbs/describe.h"

namespace rdmacomm {

// The cases that complete_straight() does not handle: a failed request; a successful request that is not reported; and
// a receive of a pool, which is in no ring.
[[gnu::noinline]] bool ChannelCore::complete_any(const ibv_wc& wc, Completion& out) noexcept {
  if (is_pooled_request(wc.wr_id)) {
    out.id = ReceivePoolCore::take(wc.wr_id).index;
    out.operation = Operation::kRecv;
  } else {
    const std::uint32_t position = request_position(wc.wr_id);
    RequestRing& ring = is_recv_request(wc.wr_id) ? recv_ : send_;
    const RequestRing::Entry entry = ring.entry_of(position);
    ring.pass(position);
    if (wc.status == IBV_WC_SUCCESS || entry.report() == Report::kNever) return false;
    out.id = entry.id;
    out.operation = entry.operation();
  }
  if (wc.status == IBV_WC_SUCCESS) {
    describe(wc, true, 0, out);
  } else {
    out.channel = this;
    out.has_immediate = false;
    out.error = verbs::errc_of(wc.status);
    out.immediate = 0;
    out.vendor_error = wc.vendor_err;
    out.bytes = 0;
  }
  return true;
}

// Appends the completions in `cq` to `out` while `out` has room, and adds their number to `count`.
[[gnu::noinline]] Errc ChannelCore::poll_more(ibv_cq* cq, std::span<Completion> out, std::size_t& count) noexcept {
  return report_more(cq, out, count, [this](const ibv_wc& wc, Completion& into) { return complete(wc, into); });
}

// The same for all completion queues of the channel.
Errc ChannelCore::poll_all(std::span<Completion> out, std::size_t& count) noexcept {
  const Errc failed = poll_more(send_cq_, out, count);
  return failed != Errc::kOk || recv_cq_ == send_cq_ ? failed : poll_more(recv_cq_, out, count);
}

// Polls all completion queues, and fills `out` behind its first `count` completions.
[[gnu::noinline]] Polled ChannelCore::poll_rest(std::span<Completion> out, std::size_t count) noexcept {
  Errc failed = poll_all(out, count);
  if (failed == Errc::kOk && count == 0 && unreported_end_.load(std::memory_order_relaxed))
    failed = poll_for_end(out, count);
  return {out.data(), count, failed};
}

// The slow path of poll(). The first batch has brought `got` completions.
[[gnu::noinline]] Polled ChannelCore::poll_on(int got, const ibv_wc* batch, std::span<Completion> out) noexcept {
  if (got < 0) return {out.data(), 0, Errc::kCompletionFailed};
  std::size_t count = 0;
  report_all({batch, static_cast<std::size_t>(got)}, out, count,
             [this](const ibv_wc& wc, Completion& into) { return complete(wc, into); });
  const bool all_seen = got < batch_for(out.size());
  if (all_seen && (count > 0 || !unreported_end_.load(std::memory_order_relaxed))) return {out.data(), count};
  return poll_rest(out, count);
}

// For channels that cannot use the fast path: completions are kept, there are two queues, or the queue is shared.
[[gnu::noinline]] Polled ChannelCore::poll_aside(std::span<Completion> out) noexcept {
  if (!owns_queue_) return {out.data(), 0, Errc::kWrongState};
  if (!keeps_any()) return poll_rest(out, 0);
  const std::span<Completion> kept = source_->take_kept(out);
  return {kept.data(), kept.size()};
}

// The fast path is for a poll that finds no completion or one. Nearly all polls do, and their cost matters most.
// An empty `out` takes it, too: the device is asked for 0 completions and returns none.
RDMACOMM_HOT_INLINE Polled ChannelCore::poll_now(std::span<Completion> out) noexcept {
  if (!straight_) [[unlikely]]
    return poll_aside(out);
  ibv_wc wcs[kCompletionBatch];  // the device fills only the first `got`
  const int got = ibv_poll_cq(send_cq_, batch_for(out.size()), wcs);
  if (got == 1 && complete_straight(wcs[0], *out.data())) [[likely]]
    return {out.data(), 1};
  if (got == 0 && !unreported_end_.load(std::memory_order_relaxed)) [[likely]]
    return {out.data(), 0};
  return Polled(out.data(), poll_on(got, wcs, out));
}

Polled RDMAChannel::poll(std::span<Completion> out) noexcept {
  return core_of(*this).poll_now(out);
}

// The queues were found empty, but possibly before the drain began. So they are polled once more.
[[gnu::noinline]] Errc ChannelCore::poll_for_end(std::span<Completion> out, std::size_t& count) noexcept {
  if (out.empty()) return Errc::kOk;
  look_for_end();
  const Errc failed = poll_all(out, count);
  if (failed == Errc::kOk && count == 0) settle();
  return failed;
}

// The device has reported everything by now: requests without a completion will never get one.
void ChannelCore::settle() noexcept {
  if (!end_seen_) return;
  for (RequestRing* ring : {&send_, &recv_}) {
    ring->unreported.store(
        ring->posted.load(std::memory_order_relaxed) - ring->completed.load(std::memory_order_relaxed),
        std::memory_order_relaxed);
  }
}

}  // namespace rdmacomm
