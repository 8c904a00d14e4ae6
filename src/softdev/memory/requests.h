// requests.h - the kinds of work requests, and the check of their slices.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/hot_inline.h"
#include "softdev/common/newer_numbers.h"
#include "softdev/memory/mr_table.h"

namespace rdmacomm::softdev {

/// True if a byte from another host is an operation that a target executes. Check this before a cast: other values may
/// be outside the range of ibv_wr_opcode, for which a cast is undefined.
[[nodiscard]] constexpr bool is_remote_opcode(std::uint8_t byte) noexcept {
  static_assert(IBV_WR_RDMA_WRITE == 0 && IBV_WR_ATOMIC_FETCH_AND_ADD == 6);
  return byte <= IBV_WR_ATOMIC_FETCH_AND_ADD || byte == IBV_WR_SEND_WITH_INV || byte == kWrFlush ||
         byte == kWrAtomicWrite;
}

/// Operations that return the value before. An ATOMIC WRITE returns nothing.
[[nodiscard]] constexpr bool is_atomic(ibv_wr_opcode opcode) noexcept {
  return opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

/// Requests that only reliable connected queue pairs have.
[[nodiscard]] constexpr bool is_for_connected(ibv_wr_opcode opcode) noexcept {
  return opcode == kWrFlush || opcode == kWrAtomicWrite;
}

/// The parts of a FLUSH request, which ibv_send_wr has no members for. They lie in those of an atomic.
struct FlushRequest {
  std::uint64_t address;
  std::uint64_t length;
  std::uint32_t key;
  std::uint8_t type;   ///< kFlushGlobal, kFlushPersistent
  std::uint8_t level;  ///< kFlushRange, kFlushRegistration

  void put(ibv_send_wr& wr) const noexcept {
    wr.wr.atomic = {address, length, static_cast<std::uint64_t>(type) | static_cast<std::uint64_t>(level) << 8, key};
  }
  [[nodiscard]] static FlushRequest of(const ibv_send_wr& wr) noexcept {
    const auto& parts = wr.wr.atomic;
    return {parts.remote_addr, parts.compare_add, parts.rkey, static_cast<std::uint8_t>(parts.swap),
            static_cast<std::uint8_t>(parts.swap >> 8)};
  }
  /// False for numbers that do not exist.
  [[nodiscard]] bool is_valid() const noexcept {
    return type != 0 && (type & ~(kFlushGlobal | kFlushPersistent)) == 0 && level <= kFlushRegistration;
  }
  /// The access that the queue pair and the registration must grant.
  [[nodiscard]] std::uint32_t needed_access() const noexcept {
    return ((type & kFlushGlobal) != 0 ? kAccessFlushGlobal : 0) |
           ((type & kFlushPersistent) != 0 ? kAccessFlushPersistent : 0);
  }
};

/// True if the request uses the members of ibv_send_wr::wr.atomic.
[[nodiscard]] constexpr bool has_operands(ibv_wr_opcode opcode) noexcept {
  return is_atomic(opcode) || opcode == kWrFlush;
}

/// READs and atomics: bytes of the target are written into the local slices.
[[nodiscard]] constexpr bool brings_bytes(ibv_wr_opcode opcode) noexcept {
  return opcode == IBV_WR_RDMA_READ || is_atomic(opcode);
}

[[nodiscard]] constexpr bool is_send(ibv_wr_opcode opcode) noexcept {
  return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_SEND_WITH_INV;
}

[[nodiscard]] constexpr bool is_write(ibv_wr_opcode opcode) noexcept {
  return opcode == IBV_WR_RDMA_WRITE || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

/// SENDs and WRITEs, the most common requests: they return no bytes and need no special treatment.
[[nodiscard]] constexpr bool is_plain(ibv_wr_opcode opcode) noexcept {
  static_assert(IBV_WR_RDMA_WRITE == 0 && IBV_WR_RDMA_WRITE_WITH_IMM == 1 && IBV_WR_SEND == 2);
  static_assert(IBV_WR_SEND_WITH_IMM == 3);
  return static_cast<unsigned>(opcode) <= IBV_WR_SEND_WITH_IMM;
}

/// A message: it takes a receive at the target and completes it.
[[nodiscard]] constexpr bool takes_receive(ibv_wr_opcode opcode) noexcept {
  return is_send(opcode) || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

/// For local memory windows: no target is involved.
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

/// The access rights that its slices need.
[[nodiscard]] constexpr std::uint32_t needed_locally(ibv_wr_opcode opcode) noexcept {
  return brings_bytes(opcode) ? IBV_ACCESS_LOCAL_WRITE : 0;
}

/// True if each slice is registered in `table` for `pd` with the rights that the request needs, and needs no
/// translation (iova). Inline slices need no registration. Adds the lengths of all slices to `bytes`; the sum is
/// correct only if the result is true.
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
