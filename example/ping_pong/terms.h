// terms.h - what the two sides of ping_pong_test tell each other in the handshake.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "rdmacomm/result.h"

namespace rdmacomm::ping_pong {

/// The private data of the client: what will be done. The server has no say in it.
///   magic u32 "RDPP" | version u16 | size u64 | iterations u32, little-endian
struct Terms {
  static constexpr std::uint64_t kMaxSize = std::uint64_t{1} << 30;
  static constexpr std::uint32_t kMaxIterations = 10'000'000;

  std::uint64_t size = 64;          ///< bytes of each message, 1..kMaxSize
  std::uint32_t iterations = 1000;  ///< round trips, 1..kMaxIterations

  /// kInvalidArgument: outside of the range given above; the context names value and range.
  [[nodiscard]] Status validate() const;
  [[nodiscard]] std::vector<std::byte> encode() const;
  /// kBadMessage: not of this protocol, truncated or out of range; kVersionMismatch: the context names both versions.
  [[nodiscard]] static Result<Terms> decode(std::span<const std::byte> bytes);
};

}  // namespace rdmacomm::ping_pong
