// Polling: the other hot half of RDMAChannel. No allocation, lock, log, string or system call in this file.
#include <algorithm>

#include "channel/completion_batch.h"
#include "channel/request_ring.h"
#include "rdmacomm/channel/rdma_channel.h"
#include "rdmacomm/channel/receive_pool.h"

namespace rdmacomm {
// A receive that was posted for many channels: it is in no ring.
[[gnu::noinline]] bool RDMAChannel::complete_pooled(const ibv_wc& wc, Completion& out) noexcept {
  out.id = ReceivePool::take(wc.wr_id).index;
  out.operation = Operation::kRecv;
  describe(wc, true, 0, out);
  return true;
}

// Adds what `cq` has to `count` and `out`, as far as there is room.
[[gnu::noinline]] std::error_code RDMAChannel::poll_more(ibv_cq* cq, std::span<Completion> out,
                                                         std::size_t& count) noexcept {
  return report_more(cq, out, count, [this](const ibv_wc& wc, Completion& into) { return complete(wc, into); });
}

// What poll() does beyond its straight line. The first batch has brought `got`, of which `taken` are not completed yet.
[[gnu::noinline]] std::error_code RDMAChannel::poll_on(int got, std::span<const ibv_wc> taken,
                                                       std::span<Completion> out, std::size_t& count) noexcept {
  if (got < 0) return Errc::kCompletionFailed;
  report_all(taken, out, count, [this](const ibv_wc& wc, Completion& into) { return complete(wc, into); });
  std::error_code failed = got < batch_for(out.size()) ? no_error_ : poll_more(send_cq_, out, count);
  if (!failed && recv_cq_ != send_cq_) failed = poll_more(recv_cq_, out, count);
  if (failed || count > 0 || !untold_end_.load(std::memory_order_relaxed)) return failed;
  return poll_for_end(out, count);
}

// The straight line is for a poll that finds nothing, or one completion: so it is nearly always, and then it counts. What the rest
// can find out again is not kept for it.
std::error_code RDMAChannel::poll(std::span<Completion> out, std::size_t& count) noexcept {
  count = 0;
  if (out.empty()) [[unlikely]]
    return no_error_;
  ibv_wc wcs[kCompletionBatch];  // written by the device as far as used
  const int got = ibv_poll_cq(send_cq_, batch_for(out.size()), wcs);
  if (got == 0) {
    if (recv_cq_ == send_cq_ && !untold_end_.load(std::memory_order_relaxed)) [[likely]]
      return no_error_;
    return poll_on(got, {}, out, count);
  }
  if (got == 1) [[likely]] {
    if (complete(wcs[0], out[0])) [[likely]] {
      count = 1;
      if (recv_cq_ == send_cq_) [[likely]]
        return no_error_;
    }
    return poll_on(got, {}, out, count);
  }
  return poll_on(got, {wcs, static_cast<std::size_t>(std::max(got, 0))}, out, count);
}

// The queues were empty, but may have been so before the drain began: another look settles it.
[[gnu::noinline]] std::error_code RDMAChannel::poll_for_end(std::span<Completion> out, std::size_t& count) noexcept {
  look_for_end();
  std::error_code failed = poll_more(send_cq_, out, count);
  if (!failed && recv_cq_ != send_cq_) failed = poll_more(recv_cq_, out, count);
  if (!failed && count == 0) settle();
  return failed;
}

// What the completion queue does not have by now will never be in it.
void RDMAChannel::settle() noexcept {
  if (!end_seen_) return;
  for (RequestRing* ring : {&send_, &recv_}) {
    ring->untold.store(ring->posted.load(std::memory_order_relaxed) - ring->completed.load(std::memory_order_relaxed),
                       std::memory_order_relaxed);
  }
}

std::error_code RDMAChannel::poll(CompletionHandler& handler, std::size_t& count, std::size_t limit) {
  count = 0;
  while (count < limit) {
    Completion completions[kCompletionBatch];
    std::size_t got = 0;
    const std::size_t asked = std::min(limit - count, kCompletionBatch);
    const std::error_code failed = poll(std::span(completions, asked), got);
    for (std::size_t i = 0; i < got; ++i) handler.on_completion(completions[i]);
    count += got;
    if (failed) return failed;
    if (got < asked) break;
  }
  return {};
}

}  // namespace rdmacomm
