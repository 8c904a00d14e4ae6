// request_ring.h - the hot functions of ChannelCore's request rings and completions, inline for the two pollers.
// Layer: channel, internal.
#pragma once

#include <arpa/inet.h>

#include "channel/channel_core.h"
#include "channel/request_id.h"
#include "verbs/describe.h"

namespace rdmacomm {

inline std::uint32_t ChannelCore::RequestRing::room(std::uint32_t position) noexcept {
  // The last place counts as seldom as none: whoever takes it has something to decide (prepare()).
  if (position - completed_seen + 1 >= depth) completed_seen = completed.load(std::memory_order_acquire);
  return depth - (position - completed_seen);
}

// Takes one completion off its ring and describes it in `out`. Returns false where the caller is not to hear of it.
inline bool ChannelCore::complete(const ibv_wc& wc, Completion& out) noexcept {
  if (is_pooled_request(wc.wr_id)) return complete_pooled(wc, out);
  const bool is_recv = is_recv_request(wc.wr_id);
  const std::uint32_t position = request_position(wc.wr_id);
  RequestRing& ring = is_recv ? recv_ : send_;
  // The entry was written by the posting thread, which only the device ties to this one: hence the acquire.
  (void)ring.posted.load(std::memory_order_acquire);
  const RequestRing::Entry entry = ring.at(position);
  // Requests complete in order: whatever is older and was not reported is done as well.
  ring.completed.store(position + 1, std::memory_order_release);
  const bool ok = wc.status == IBV_WC_SUCCESS;
  const Report report = entry.report();
  if (report != Report::kAlways && (ok || report == Report::kNever)) return false;
  out.id = entry.id;
  out.operation = entry.operation();
  describe(wc, is_recv, entry.bytes(), out);
  return true;
}

// What does not depend on where the request was posted.
inline void ChannelCore::describe(const ibv_wc& wc, bool is_recv, std::uint32_t bytes, Completion& out) noexcept {
  out.channel = this;
  out.has_immediate = false;
  out.immediate = 0;
  out.vendor_error = 0;
  if (wc.status != IBV_WC_SUCCESS) [[unlikely]] {
    out.error = verbs::errc_of(wc.status);
    out.bytes = 0;
    out.vendor_error = wc.vendor_err;
    return;
  }
  out.error = Errc::kOk;
  out.bytes = is_recv ? wc.byte_len : bytes;
  if (!is_recv) return;
  if (wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM) out.operation = Operation::kRecvWriteImm;
  out.has_immediate = (wc.wc_flags & IBV_WC_WITH_IMM) != 0;
  if (out.has_immediate) out.immediate = ntohl(wc.imm_data);
}

}  // namespace rdmacomm
