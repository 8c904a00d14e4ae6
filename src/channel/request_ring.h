// request_ring.h - the hot functions of ChannelCore's request rings and completions, inline for RDMAChannel::poll() and
// CompletionQueue. Layer: channel, internal.
#pragma once

#include <arpa/inet.h>

#include "channel/channel_core.h"
#include "channel/request_id.h"

namespace rdmacomm {

inline std::uint32_t ChannelCore::RequestRing::room(std::uint32_t position) noexcept {
  // The counter is read again also for the last free place, because prepare() handles that place differently.
  if (!has_room(position)) completed_seen = completed.load(std::memory_order_acquire);
  return depth - (position - completed_seen);
}

// The entry of a request that has completed.
inline ChannelCore::RequestRing::Entry ChannelCore::RequestRing::entry_of(std::uint32_t position) const noexcept {
  // The posting thread wrote the entry. Only the device connects the two threads, so the acquire is needed.
  (void)posted.load(std::memory_order_acquire);
  return at(position);
}

// Takes the request at `position` out of the ring. Requests complete in order, so this also takes out all older
// requests that were not reported.
inline void ChannelCore::RequestRing::pass(std::uint32_t position) noexcept {
  completed.store(position + 1, std::memory_order_release);
}

// Describes an executed request in `out`, except its id and operation, which come from its entry.
//
// bytes  the payload of a send-side request, as posted
inline void ChannelCore::describe(const ibv_wc& wc, bool is_recv, std::uint32_t bytes, Completion& out) noexcept {
  out.channel = this;
  out.has_immediate = false;
  out.error = Errc::kOk;
  out.immediate = 0;
  out.vendor_error = 0;
  out.bytes = bytes;
  if (!is_recv) return;
  out.bytes = wc.byte_len;
  if (wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM) out.operation = Operation::kRecvWriteImm;
  out.has_immediate = (wc.wc_flags & IBV_WC_WITH_IMM) != 0;
  if (out.has_immediate) out.immediate = ntohl(wc.imm_data);
}

// The fast path of complete(): for an executed request that is in a ring of the channel and is reported to the caller.
// In all other cases it does nothing and returns false.
inline bool ChannelCore::complete_straight(const ibv_wc& wc, Completion& out) noexcept {
  if (wc.status != IBV_WC_SUCCESS || is_pooled_request(wc.wr_id)) [[unlikely]]
    return false;
  const bool is_recv = is_recv_request(wc.wr_id);
  const std::uint32_t position = request_position(wc.wr_id);
  RequestRing& ring = is_recv ? recv_ : send_;
  const RequestRing::Entry entry = ring.entry_of(position);
  if (entry.report() != Report::kAlways) [[unlikely]]
    return false;
  ring.pass(position);
  out.id = entry.id;
  out.operation = entry.operation();
  describe(wc, is_recv, entry.bytes(), out);
  return true;
}

// Takes one completion off its ring and describes it in `out`. Returns false if the caller does not get it.
inline bool ChannelCore::complete(const ibv_wc& wc, Completion& out) noexcept {
  if (complete_straight(wc, out)) [[likely]]
    return true;
  return complete_any(wc, out);
}

}  // namespace rdmacomm
