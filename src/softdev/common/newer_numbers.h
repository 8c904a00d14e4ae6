// newer_numbers.h - numbers of rdma-core that older releases of <infiniband/verbs.h> do not declare.
//
// Source: libibverbs/verbs.h and kernel-headers/rdma/ib_user_verbs.h of rdma-core 60. ATOMIC WRITE came with release
// 44, FLUSH with release 56.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

namespace rdmacomm::softdev {

inline constexpr auto kWrFlush = static_cast<ibv_wr_opcode>(14);
inline constexpr auto kWrAtomicWrite = static_cast<ibv_wr_opcode>(15);
inline constexpr auto kWcFlush = static_cast<ibv_wc_opcode>(8);
inline constexpr auto kWcAtomicWrite = static_cast<ibv_wc_opcode>(9);
/// IBV_QP_EX_WITH_...
inline constexpr std::uint64_t kWithFlush = 1U << 11;
inline constexpr std::uint64_t kWithAtomicWrite = 1U << 12;
/// IBV_ACCESS_FLUSH_...
inline constexpr std::uint32_t kAccessFlushGlobal = 1U << 8;
inline constexpr std::uint32_t kAccessFlushPersistent = 1U << 9;
/// ibv_device_attr_ex::device_cap_flags_ex
inline constexpr std::uint64_t kCanFlushGlobal = std::uint64_t{1} << 38;
inline constexpr std::uint64_t kCanWriteAtomically = std::uint64_t{1} << 40;
/// ibv_odp_caps
inline constexpr std::uint32_t kPagedFlush = 1U << 6;
inline constexpr std::uint32_t kPagedAtomicWrite = 1U << 7;

/// ibv_placement_type: bits that can be combined.
inline constexpr std::uint8_t kFlushGlobal = 1;
inline constexpr std::uint8_t kFlushPersistent = 2;
/// ibv_selectivity_level
inline constexpr std::uint8_t kFlushRange = 0;
inline constexpr std::uint8_t kFlushRegistration = 1;

}  // namespace rdmacomm::softdev
