// Polling: the other hot half of RDMAChannel. No allocation, lock, log, string or system call in this file.
#include <algorithm>

#include "base/hot_inline.h"
#include "channel/request_ring.h"
#include "rdmacomm/channel/rdma_channel.h"
#include "rdmacomm/channel/receive_pool.h"

namespace rdmacomm {
namespace {

constexpr std::size_t kBatch = 16;  // completions taken from the device at a time: 768 bytes of stack

}  // namespace

// A receive that was posted for many channels: it is in no ring.
[[gnu::noinline]] bool RDMAChannel::complete_pooled(const ibv_wc& wc, Completion& out) noexcept {
  out.id = ReceivePool::take(wc.wr_id).index;
  out.operation = Operation::kRecv;
  describe(wc, true, 0, out);
  return true;
}

// Asks `cq` once, for what fits behind the first `count` of `out`, and adds what came to `count`. Returns how many
// fewer came than were asked for, so 0 when more may be there; or -1 when the queue itself has failed.
RDMACOMM_HOT_INLINE int RDMAChannel::take_batch(ibv_cq* cq, std::span<Completion> out, std::size_t& count) noexcept {
  ibv_wc wcs[kBatch];         // written by the device as far as used
  std::size_t taken = count;  // not the caller's: the compiler would have to store it after each completion
  const int asked = static_cast<int>(std::min(out.size() - taken, kBatch));
  const int got = ibv_poll_cq(cq, asked, wcs);
  if (got < 0) [[unlikely]]
    return -1;
  for (int i = 0; i < got; ++i) {
    if (complete(wcs[i], out[taken])) ++taken;
  }
  count = taken;
  return asked - got;
}

// The rest of a poll that one batch does not do. Apart from poll(), so that the usual case stays short.
[[gnu::noinline]] std::error_code RDMAChannel::poll_more(ibv_cq* cq, std::span<Completion> out,
                                                         std::size_t& count) noexcept {
  int missing = 0;
  while (missing == 0 && count < out.size()) missing = take_batch(cq, out, count);
  return missing < 0 ? std::error_code(Errc::kCompletionFailed) : no_error_;
}

RDMACOMM_HOT_INLINE std::error_code RDMAChannel::poll_queues(std::span<Completion> out, std::size_t& count) noexcept {
  const int missing = take_batch(send_cq_, out, count);
  if (missing <= 0) {
    if (missing < 0) [[unlikely]]
      return Errc::kCompletionFailed;
    if (count < out.size()) {
      if (const std::error_code failed = poll_more(send_cq_, out, count)) return failed;
    }
  }
  if (recv_cq_ == send_cq_) [[likely]]
    return no_error_;
  return poll_more(recv_cq_, out, count);
}

std::error_code RDMAChannel::poll(std::span<Completion> out, std::size_t& count) noexcept {
  count = 0;
  if (out.empty()) [[unlikely]]
    return no_error_;
  const std::error_code failed = poll_queues(out, count);
  if (!untold_end_.load(std::memory_order_relaxed) || failed || count > 0) [[likely]]
    return failed;
  return poll_for_end(out, count);
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
    Completion completions[kBatch];
    std::size_t got = 0;
    const std::size_t asked = std::min(limit - count, kBatch);
    const std::error_code failed = poll(std::span(completions, asked), got);
    for (std::size_t i = 0; i < got; ++i) handler.on_completion(completions[i]);
    count += got;
    if (failed) return failed;
    if (got < asked) break;
  }
  return {};
}

}  // namespace rdmacomm
