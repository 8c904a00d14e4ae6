#include "rdmacomm/channel/completion_poller.h"

#include <algorithm>

#include "channel/request_ring.h"

namespace rdmacomm {
namespace {

constexpr std::size_t kBatch = 16;  // completions taken from the device at a time

std::uint32_t qpn_of(const RDMAChannel* channel) {
  return channel->adapter().address().qpn;
}

}  // namespace

void CompletionPoller::attach(RDMAChannel& channel) {
  const std::scoped_lock lock(mutex_);
  const auto place = std::ranges::lower_bound(by_qpn_, qpn_of(&channel), {}, qpn_of);
  by_qpn_.insert(place, &channel);
  tells_every_end_ = channel.adapter().device().limits().flushes_in_error;
}

void CompletionPoller::detach(RDMAChannel& channel) {
  const std::scoped_lock lock(mutex_);
  std::erase(by_qpn_, &channel);
}

std::error_code CompletionPoller::poll(std::span<Completion> out, std::size_t& count) noexcept {
  count = 0;
  if (out.empty()) return {};
  const std::scoped_lock lock(mutex_);
  const std::error_code failed = take(out, count);
  if (tells_every_end_ || failed || count > 0) [[likely]]
    return failed;
  // As in RDMAChannel::poll().
  for (RDMAChannel* channel : by_qpn_) channel->look_for_end();
  const std::error_code failed_now = take(out, count);
  if (failed_now || count > 0) return failed_now;
  for (RDMAChannel* channel : by_qpn_) channel->settle();
  return {};
}

// As RDMAChannel::poll_queues().
std::error_code CompletionPoller::take(std::span<Completion> out, std::size_t& count) noexcept {
  while (count < out.size()) {
    ibv_wc wcs[kBatch];  // written by the device as far as used
    const int asked = static_cast<int>(std::min(out.size() - count, kBatch));
    const int got = ibv_poll_cq(cq_.get(), asked, wcs);
    if (got < 0) [[unlikely]]
      return Errc::kCompletionFailed;
    for (int i = 0; i < got; ++i) {
      const auto found = std::ranges::lower_bound(by_qpn_, wcs[i].qp_num, {}, qpn_of);
      if (found == by_qpn_.end() || qpn_of(*found) != wcs[i].qp_num) continue;  // detached: nobody's any more
      if ((*found)->complete(wcs[i], out[count])) ++count;
    }
    if (got < asked) break;
  }
  return {};
}

}  // namespace rdmacomm
