// Polling: the other hot half of RDMAChannel. No allocation, lock, log, string or system call in this file.
#include <algorithm>

#include "channel/request_ring.h"
#include "rdmacomm/channel/rdma_channel.h"

namespace rdmacomm {
namespace {

constexpr std::size_t kBatch = 16;  // completions taken from the device at a time: 768 bytes of stack

}  // namespace

// Adds what `cq` has to `out`, behind its first `count`.
[[gnu::always_inline]] inline std::error_code RDMAChannel::poll_queue(ibv_cq* cq, std::span<Completion> out,
                                                                      std::size_t& count) noexcept {
  while (count < out.size()) {
    ibv_wc wcs[kBatch];  // written by the device as far as used
    const int asked = static_cast<int>(std::min(out.size() - count, kBatch));
    const int got = ibv_poll_cq(cq, asked, wcs);
    if (got < 0) [[unlikely]]
      return Errc::kCompletionFailed;
    for (int i = 0; i < got; ++i) {
      if (complete(wcs[i], out[count])) ++count;
    }
    if (got < asked) break;
  }
  return {};
}

std::error_code RDMAChannel::poll(std::span<Completion> out, std::size_t& count) noexcept {
  count = 0;
  const std::error_code failed = poll_queue(send_cq_, out, count);
  if (recv_cq_ == send_cq_ || failed) return failed;
  return poll_queue(recv_cq_, out, count);
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
