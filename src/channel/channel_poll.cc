// Polling: the other hot half of a channel. No allocation, lock, log, string or system call in this file.
#include <algorithm>

#include "base/hot_inline.h"
#include "channel/channel_core.h"
#include "channel/completion_batch.h"
#include "channel/receive_pool_core.h"
#include "channel/request_ring.h"

namespace rdmacomm {

// A receive that was posted for many channels: it is in no ring.
[[gnu::noinline]] bool ChannelCore::complete_pooled(const ibv_wc& wc, Completion& out) noexcept {
  out.id = ReceivePoolCore::take(wc.wr_id).index;
  out.operation = Operation::kRecv;
  describe(wc, true, 0, out);
  return true;
}

// Adds what `cq` has to `count` and `out`, as far as there is room.
[[gnu::noinline]] Errc ChannelCore::poll_more(ibv_cq* cq, std::span<Completion> out, std::size_t& count) noexcept {
  return report_more(cq, out, count, [this](const ibv_wc& wc, Completion& into) { return complete(wc, into); });
}

// What poll() does beyond its straight line. The first batch has brought `got`, of which `taken` are not completed yet. If `taken` is empty
// and `got` is 1, that one has been completed, and was reported if `first_reported`.
[[gnu::noinline]] Polled ChannelCore::poll_on(int got, bool first_reported, std::span<const ibv_wc> taken,
                                              std::span<Completion> out) noexcept {
  if (got < 0) return {out.data(), 0, Errc::kCompletionFailed};
  std::size_t count = first_reported ? 1 : 0;
  report_all(taken, out, count, [this](const ibv_wc& wc, Completion& into) { return complete(wc, into); });
  Errc failed = got < batch_for(out.size()) ? Errc::kOk : poll_more(send_cq_, out, count);
  if (failed == Errc::kOk && recv_cq_ != send_cq_) failed = poll_more(recv_cq_, out, count);
  if (failed == Errc::kOk && count == 0 && untold_end_.load(std::memory_order_relaxed))
    failed = poll_for_end(out, count);
  return {out.data(), count, failed};
}

// The straight line is for a poll that finds nothing, or one completion: so it is nearly always, and then it counts. What the rest
// can find out again is not kept for it.
RDMACOMM_HOT_INLINE Polled ChannelCore::poll_now(std::span<Completion> out) noexcept {
  if (out.empty()) [[unlikely]]
    return {};
  ibv_wc wcs[kCompletionBatch];  // written by the device as far as used
  const int got = ibv_poll_cq(send_cq_, batch_for(out.size()), wcs);
  if (got == 0) {
    if (recv_cq_ == send_cq_ && !untold_end_.load(std::memory_order_relaxed)) [[likely]]
      return {};
    return poll_on(got, false, {}, out);
  }
  if (got == 1) [[likely]] {
    const bool reported = complete(wcs[0], out[0]);
    if (reported && recv_cq_ == send_cq_) [[likely]]
      return {out.data(), 1};
    return poll_on(got, reported, {}, out);
  }
  return poll_on(got, false, {wcs, static_cast<std::size_t>(std::max(got, 0))}, out);
}

Polled RDMAChannel::poll(std::span<Completion> out) noexcept {
  return core_of(*this).poll_now(out);
}

// The queues were empty, but may have been so before the drain began: another look settles it.
[[gnu::noinline]] Errc ChannelCore::poll_for_end(std::span<Completion> out, std::size_t& count) noexcept {
  look_for_end();
  Errc failed = poll_more(send_cq_, out, count);
  if (failed == Errc::kOk && recv_cq_ != send_cq_) failed = poll_more(recv_cq_, out, count);
  if (failed == Errc::kOk && count == 0) settle();
  return failed;
}

// What the completion queue does not have by now will never be in it.
void ChannelCore::settle() noexcept {
  if (!end_seen_) return;
  for (RequestRing* ring : {&send_, &recv_}) {
    ring->untold.store(ring->posted.load(std::memory_order_relaxed) - ring->completed.load(std::memory_order_relaxed),
                       std::memory_order_relaxed);
  }
}

}  // namespace rdmacomm
