// requests.h - what kind of request a work request is, and whether its slices may be used.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/hot_inline.h"
#include "softdev/memory/mr_table.h"

namespace rdmacomm::softdev {

/// Whether a byte that another host has sent names an operation that a target carries out. What does not may be out of the range of
/// ibv_wr_opcode, and a cast is not defined then.
[[nodiscard]] constexpr bool is_remote_opcode(std::uint8_t byte) noexcept {
  static_assert(IBV_WR_RDMA_WRITE == 0 && IBV_WR_ATOMIC_FETCH_AND_ADD == 6);
  return byte <= IBV_WR_ATOMIC_FETCH_AND_ADD || byte == IBV_WR_SEND_WITH_INV;
}

[[nodiscard]] constexpr bool is_atomic(ibv_wr_opcode opcode) noexcept {
  return opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

/// READs and atomics: bytes of the target's come back into the slices.
[[nodiscard]] constexpr bool brings_bytes(ibv_wr_opcode opcode) noexcept {
  return opcode == IBV_WR_RDMA_READ || is_atomic(opcode);
}

[[nodiscard]] constexpr bool is_send(ibv_wr_opcode opcode) noexcept {
  return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_SEND_WITH_INV;
}

[[nodiscard]] constexpr bool is_write(ibv_wr_opcode opcode) noexcept {
  return opcode == IBV_WR_RDMA_WRITE || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

/// SENDs and WRITEs, the most usual ones: they bring nothing back, and there is nothing more to know of them.
[[nodiscard]] constexpr bool is_plain(ibv_wr_opcode opcode) noexcept {
  static_assert(IBV_WR_RDMA_WRITE == 0 && IBV_WR_RDMA_WRITE_WITH_IMM == 1 && IBV_WR_SEND == 2);
  static_assert(IBV_WR_SEND_WITH_IMM == 3);
  return static_cast<unsigned>(opcode) <= IBV_WR_SEND_WITH_IMM;
}

/// A message: it takes a receive at the target, and completes it.
[[nodiscard]] constexpr bool takes_receive(ibv_wr_opcode opcode) noexcept {
  return is_send(opcode) || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

/// About memory windows of this side: no target is asked.
[[nodiscard]] constexpr bool is_for_here(ibv_wr_opcode opcode) noexcept {
  return opcode == IBV_WR_BIND_MW || opcode == IBV_WR_LOCAL_INV;
}

[[nodiscard]] inline std::span<const ibv_sge> slices_of(const ibv_send_wr& wr) noexcept {
  return {wr.sg_list, static_cast<std::size_t>(wr.num_sge)};
}

[[nodiscard]] inline std::uint64_t message_bytes(const ibv_send_wr& wr) noexcept {
  std::uint64_t bytes = 0;
  for (const ibv_sge& slice : slices_of(wr)) bytes += slice.length;
  return bytes;
}

/// What the registrations of its slices must grant.
[[nodiscard]] constexpr std::uint32_t needed_locally(ibv_wr_opcode opcode) noexcept {
  return brings_bytes(opcode) ? IBV_ACCESS_LOCAL_WRITE : 0;
}

/// Whether each slice is registered in `table` for `pd`, as the request needs it, and lies where it says; inline ones need
/// not be registered. Adds what they have together to `bytes`, which is right only where all are.
[[nodiscard]] RDMACOMM_HOT_INLINE bool slices_valid(std::span<const MrEntry> table, std::uint32_t pd,
                                                    const ibv_send_wr& wr, std::uint64_t& bytes) noexcept {
  const bool check = (wr.send_flags & IBV_SEND_INLINE) == 0;
  const std::uint32_t access = needed_locally(wr.opcode);
  for (int i = 0; i < wr.num_sge; ++i) {
    const ibv_sge& slice = wr.sg_list[i];
    bytes += slice.length;
    if (check && slice.length != 0 && find_range(table, slice.lkey, pd, slice.addr, slice.length, access) == nullptr) {
      return false;
    }
  }
  return true;
}

}  // namespace rdmacomm::softdev
