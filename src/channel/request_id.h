// request_id.h - what a channel puts into wr_id: the position in its queue, and which queue.
// Layer: channel, internal.
//
// On errors wr_id is the only field of a completion, besides status and qp_num, that a device fills reliably
// (ibv_poll_cq(3)), so it must tell all.
#pragma once

#include <cstdint>

namespace rdmacomm {

constexpr std::uint64_t kRecvQueueBit = std::uint64_t{1} << 63;
/// A receive of a pool, which has no position in any channel's queue: the rest is its address, which has fewer bits.
constexpr std::uint64_t kPoolBit = std::uint64_t{1} << 62;

constexpr std::uint64_t send_request_id(std::uint32_t position) noexcept {
  return position;
}
constexpr std::uint64_t recv_request_id(std::uint32_t position) noexcept {
  return kRecvQueueBit | position;
}
constexpr bool is_recv_request(std::uint64_t id) noexcept {
  return (id & kRecvQueueBit) != 0;
}
template <typename Receive>
std::uint64_t pooled_request_id(const Receive* receive) noexcept {
  return kRecvQueueBit | kPoolBit | reinterpret_cast<std::uintptr_t>(receive);
}
constexpr bool is_pooled_request(std::uint64_t id) noexcept {
  return (id & kPoolBit) != 0;
}
template <typename Receive>
Receive* pooled_request(std::uint64_t id) noexcept {
  return reinterpret_cast<Receive*>(static_cast<std::uintptr_t>(id & ~(kRecvQueueBit | kPoolBit)));
}
constexpr std::uint32_t request_position(std::uint64_t id) noexcept {
  return static_cast<std::uint32_t>(id);
}

}  // namespace rdmacomm
