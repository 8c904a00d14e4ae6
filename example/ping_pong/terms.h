// terms.h - the private data of ping_pong_test in the handshake.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "rdmacomm/result.h"

namespace rdmacomm::ping_pong {

/// The client's private data: the test to run. The server follows it.
///   magic u32 "RDPP" | version u16 | size u64 | iterations u32, little-endian
struct Terms {
  static constexpr std::uint64_t kMaxSize = std::uint64_t{1} << 30;
  static constexpr std::uint32_t kMaxIterations = 10'000'000;

  std::uint64_t size = 64;          ///< bytes of each message, 1..kMaxSize
  std::uint32_t iterations = 1000;  ///< round trips, 1..kMaxIterations

  /// kInvalidArgument: a value outside its range above; the context has value and range.
  [[nodiscard]] Status validate() const;
  [[nodiscard]] std::vector<std::byte> encode() const;
  /// kBadMessage: not of this protocol, truncated or out of range; kVersionMismatch: the context names both versions.
  [[nodiscard]] static Result<Terms> decode(std::span<const std::byte> bytes);
};

}  // namespace rdmacomm::ping_pong
