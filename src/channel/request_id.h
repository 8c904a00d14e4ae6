// request_id.h - what a channel puts into wr_id: the position in its queue, and which queue.
// Layer: channel, internal.
//
// On errors wr_id is the only field of a completion, besides status and qp_num, that a device fills reliably
// (ibv_poll_cq(3)), so it must tell all.
#pragma once

#include <cstdint>

namespace rdmacomm {

constexpr std::uint64_t kRecvQueueBit = std::uint64_t{1} << 63;

constexpr std::uint64_t send_request_id(std::uint32_t position) noexcept {
  return position;
}
constexpr std::uint64_t recv_request_id(std::uint32_t position) noexcept {
  return kRecvQueueBit | position;
}
constexpr bool is_recv_request(std::uint64_t id) noexcept {
  return (id & kRecvQueueBit) != 0;
}
constexpr std::uint32_t request_position(std::uint64_t id) noexcept {
  return static_cast<std::uint32_t>(id);
}

}  // namespace rdmacomm
