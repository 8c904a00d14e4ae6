// request_id.h - the contents of wr_id: the position of a request in its queue, and the queue.
// Layer: channel, internal.
//
// In a completion with an error, devices reliably fill only wr_id, status and qp_num (ibv_poll_cq(3)). So wr_id must
// identify the request completely.
#pragma once

#include <cstdint>

namespace rdmacomm {

/// Set for a receive of a pool. Such a receive has no position in a channel's queue, so the other bits are its address.
/// The kinds of requests are distinguished by bits that are 0 in every aligned address. The upper bits of an address
/// are not usable, because they may hold tags (HWASan, MTE).
constexpr std::uint64_t kPoolBit = 1;
constexpr std::uint64_t kRecvQueueBit = 2;
constexpr int kPositionShift = 32;

constexpr std::uint64_t send_request_id(std::uint32_t position) noexcept {
  return std::uint64_t{position} << kPositionShift;
}
constexpr std::uint64_t recv_request_id(std::uint32_t position) noexcept {
  return send_request_id(position) | kRecvQueueBit;
}
/// Only for requests that are not pooled.
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
