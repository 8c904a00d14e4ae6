// device_limits.h - what soft0 offers, and says that it offers.
#pragma once

#include <cstdint>

namespace rdmacomm::softdev {

inline constexpr std::uint32_t kVendorId = 0xffffff;  ///< nobody's, as the kernel's rxe says
inline constexpr std::uint32_t kMaxMessageBytes = 1U << 30;
inline constexpr int kMaxQueueDepth = 1 << 15;
inline constexpr int kMaxSge = 32;
inline constexpr int kMaxInlineBytes = 1024;
inline constexpr int kMaxCompletions = 1 << 22;
inline constexpr int kMaxQueuePairs = 1 << 17;
inline constexpr int kMaxReadDepth = 128;
inline constexpr int kMaxAddressHandles = 1 << 20;
inline constexpr int kMaxGroups = 8192;
inline constexpr std::uint32_t kPortMtuBytes = 4096;

}  // namespace rdmacomm::softdev
