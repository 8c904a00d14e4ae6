// completion_poller.h - completions of many channels from one completion queue.
// Layer: channel. Uses: base, device, adapter.
#pragma once

#include <mutex>
#include <span>
#include <vector>

#include "rdmacomm/channel/rdma_channel.h"

namespace rdmacomm {

/// Polls one CompletionQueue and tells by the queue pair number which channel each completion belongs to.
/// Threads: poll from one thread at a time; attach and detach from any.
/// Lifetime: must not outlive the CompletionQueue; a channel is detached before it is destroyed.
class CompletionPoller {
 public:
  explicit CompletionPoller(CompletionQueue& cq) : cq_(cq) {}

  /// From now on completions of `channel` are delivered here. Its adapter reports to this CompletionQueue.
  void attach(RDMAChannel& channel);
  /// From the return on no completion names `channel`. Its completions still in the queue are dropped.
  void detach(RDMAChannel& channel);

  /// As RDMAChannel::poll. Cost: one uncontended lock a call; a binary search a completion.
  [[nodiscard]] std::error_code poll(std::span<Completion> out, std::size_t& count) noexcept;

 private:
  [[nodiscard]] std::error_code take(std::span<Completion> out, std::size_t& count) noexcept;

  CompletionQueue& cq_;
  std::mutex mutex_;
  std::vector<RDMAChannel*> by_qpn_;  // sorted by queue pair number
  bool tells_every_end_ = true;       // the device: DeviceLimits::flushes_in_error
};

}  // namespace rdmacomm
