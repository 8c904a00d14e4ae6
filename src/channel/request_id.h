// request_id.h - what a channel puts into wr_id: the position in its queue, and which queue.
// Layer: channel, internal.
//
// On errors wr_id is the only field of a completion, besides status and qp_num, that a device fills reliably
// (ibv_poll_cq(3)), so it must tell all.
#pragma once

#include <cstdint>

namespace rdmacomm {

/// A receive of a pool, which has no position in any channel's queue: the rest is its address. The bits that tell the
/// kinds apart are those that alignment leaves free in an address; its upper ones may be in use as tags (HWASan, MTE).
constexpr std::uint64_t kPoolBit = 1;
constexpr std::uint64_t kRecvQueueBit = 2;
constexpr int kPositionShift = 32;

constexpr std::uint64_t send_request_id(std::uint32_t position) noexcept {
  return std::uint64_t{position} << kPositionShift;
}
constexpr std::uint64_t recv_request_id(std::uint32_t position) noexcept {
  return send_request_id(position) | kRecvQueueBit;
}
/// Only of requests that are not pooled.
constexpr bool is_recv_request(std::uint64_t id) noexcept {
  return (id & kRecvQueueBit) != 0;
}
template <typename Receive>
std::uint64_t pooled_request_id(const Receive* receive) noexcept {
  static_assert(alignof(Receive) > kPoolBit);
  return kPoolBit | reinterpret_cast<std::uintptr_t>(receive);
}
constexpr bool is_pooled_request(std::uint64_t id) noexcept {
  return (id & kPoolBit) != 0;
}
template <typename Receive>
Receive* pooled_request(std::uint64_t id) noexcept {
  return reinterpret_cast<Receive*>(static_cast<std::uintptr_t>(id & ~kPoolBit));
}
constexpr std::uint32_t request_position(std::uint64_t id) noexcept {
  return static_cast<std::uint32_t>(id >> kPositionShift);
}

}  // namespace rdmacomm
