// device_limits.h - the limits that soft0 has and reports.
#pragma once

#include <cstdint>

namespace rdmacomm::softdev {

inline constexpr std::uint32_t kVendorId = 0xffffff;  ///< no vendor has this number; the kernel's rxe reports it, too
inline constexpr std::uint32_t kVendorPartId = 1;     ///< rxe reports 0
inline constexpr std::uint32_t kMaxMessageBytes = 1U << 30;
inline constexpr int kMaxQueueDepth = 1 << 15;
inline constexpr int kMaxSge = 32;
inline constexpr int kMaxInlineBytes = 1024;
inline constexpr int kMaxCompletions = 1 << 22;
inline constexpr int kMaxQueuePairs = 1 << 17;
inline constexpr int kMaxReadDepth = 128;
inline constexpr int kMaxAddressHandles = 1 << 20;
inline constexpr std::uint64_t kMaxDeviceMemory = 256 * 1024;  ///< of one ibv_alloc_dm
inline constexpr int kMaxGroups = 8192;
inline constexpr std::uint32_t kPortMtuBytes = 4096;

}  // namespace rdmacomm::softdev
