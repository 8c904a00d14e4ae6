// terms.h - the messages between the sender and the receiver of a pipe.   Wire form: docs/wire_format.md "Pipes"
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "rdmacomm/result.h"

namespace rdmacomm::pipes {

inline constexpr const char* kChannel = "pipe";

/// The sender's private data, which it sends first. The receiver adapts to it. A value.
struct Terms {
  static constexpr std::uint32_t kMinBlock = 4096;
  static constexpr std::uint32_t kMaxBlock = std::uint32_t{64} << 20;
  static constexpr std::uint16_t kMinBlocks = 2;
  static constexpr std::uint16_t kMaxBlocks = 256;
  static constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 30;  ///< of all blocks

  std::uint32_t block_bytes = std::uint32_t{512} << 10;  ///< kMinBlock..kMaxBlock
  std::uint16_t blocks = 4;                              ///< of the receiver: kMinBlocks..kMaxBlocks
  bool checksum = true;                                  ///< the sender will send one
  std::optional<std::uint64_t> size = {};                ///< number of bytes to come, if known

  /// kInvalidArgument: the context names the value and its range.
  [[nodiscard]] Status validate() const;
  [[nodiscard]] std::vector<std::byte> encode() const;
  /// kBadMessage: not of this protocol, truncated or out of range; kVersionMismatch: the context names both versions.
  [[nodiscard]] static Result<Terms> decode(std::span<const std::byte> bytes);
  bool operator==(const Terms&) const = default;
};

/// From the sender, through the connector, when all bytes are written. A value.
struct Total {
  std::uint64_t bytes = 0;
  std::optional<std::uint64_t> checksum = {};  ///< XXH3, 64 bits

  [[nodiscard]] std::vector<std::byte> encode() const;
  /// kBadMessage
  [[nodiscard]] static Result<Total> decode(std::span<const std::byte> bytes);
  bool operator==(const Total&) const = default;
};

/// From the receiver, through the connector, when it has written everything, or cannot. A value.
struct Verdict {
  static constexpr std::size_t kMaxReason = 1000;

  std::optional<std::string> failure = {};  ///< empty: everything was written and is correct

  [[nodiscard]] std::vector<std::byte> encode() const;
  /// kBadMessage
  [[nodiscard]] static Result<Verdict> decode(std::span<const std::byte> bytes);
};

}  // namespace rdmacomm::pipes
