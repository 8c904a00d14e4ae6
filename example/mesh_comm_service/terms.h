// terms.h - what all nodes of a mesh do alike.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/wire.h"
#include "rdmacomm/completion.h"
#include "rdmacomm/device.h"
#include "rdmacomm/result.h"

namespace rdmacomm::mesh {

/// The traffic of each node to each other. A value, equal on all nodes.
struct Terms {
  static constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 30;
  static constexpr std::uint32_t kMaxDepth = 4096;
  /// Receives for what is told after each batch. A side waits for the other after `depth` messages: there are at most
  /// depth / batch() + 2 <= 5 of these on the way.
  static constexpr std::uint32_t kNotes = 16;

  Operation op = Operation::kWrite;  ///< kSend, kWrite, kWriteImm or kRead
  std::uint64_t size = 4096;         ///< bytes of each message, 1..kMaxBytes; the last one may be shorter
  std::uint64_t total = 0;           ///< bytes from each node to each other; 0: duration_us decides
  std::uint64_t duration_us = 0;     ///< 0: total decides
  std::uint32_t depth = 0;           ///< messages on the way to a node at a time, 1..kMaxDepth
  bool verify = false;

  /// Whether the target takes note of each message: it has receives posted, or looks at what was written.
  [[nodiscard]] bool is_counted() const noexcept {
    return op == Operation::kSend || op == Operation::kWriteImm || (op == Operation::kWrite && verify);
  }
  /// After so many messages each side tells the other how far it is.
  [[nodiscard]] std::uint32_t batch() const noexcept { return depth < 2 ? 1 : depth / 2; }
  /// Requests that either queue of a queue pair must have room for: messages, and what is told after each batch.
  [[nodiscard]] int queue_depth() const noexcept { return static_cast<int>(depth + kNotes); }
  [[nodiscard]] std::uint64_t block_bytes() const noexcept { return (size + 63) / 64 * 64; }
  /// Whether the messages that are on the way have a place each at their sender. Else all are alike, and leave from one
  /// place; what is READ goes to a place of its own each.
  [[nodiscard]] bool has_own_places() const noexcept { return verify || op == Operation::kRead; }
  /// What a node's messages with one other node take at this node, in both directions.
  [[nodiscard]] std::uint64_t bytes_per_peer() const noexcept {
    return block_bytes() * (depth + (has_own_places() ? depth : 1));
  }

  /// kInvalidArgument: a value outside its range; the context names it as its flag does.
  [[nodiscard]] Status validate() const;
  /// kBeyondDeviceLimit, kNotSupported: what the device has not.
  [[nodiscard]] Status check(const RDMADevice& device) const;
  /// "--op=write --size=4K --total=1M --queue-depth=64": for messages.
  [[nodiscard]] std::string to_text() const;

  void encode(WireWriter& writer) const;
  /// kBadMessage: truncated, or validate() says no.
  [[nodiscard]] static Result<Terms> decode(WireReader& reader);
  bool operator==(const Terms&) const = default;
};

/// send, write, write_imm, read. Returns  kInvalidArgument: none of these
[[nodiscard]] Result<Operation> parse_op(std::string_view name);
[[nodiscard]] const char* op_name(Operation op) noexcept;
/// As many messages of that size as are about 1 MiB: 2..64.
[[nodiscard]] std::uint32_t usual_depth(std::uint64_t size) noexcept;

/// What two nodes tell each other in the handshake: the private data of both sides. A value.
struct Introduction {
  std::uint32_t rank = 0;
  std::uint32_t nodes = 0;
  std::uint64_t incarnation = 0;  ///< random: tells a node that came back from the one that was there before
  Terms terms = {};
  bool running = false;            ///< traffic has begun
  std::uint64_t remaining_us = 0;  ///< of duration_us, where it has

  [[nodiscard]] std::vector<std::byte> encode() const;
  /// kBadMessage: it is none, or out of range; kVersionMismatch
  [[nodiscard]] static Result<Introduction> decode(std::span<const std::byte> bytes);
  /// Whether both belong to one mesh.
  /// Returns  kIncompatiblePeer: they do not; the context has both sides' values
  [[nodiscard]] Status check_fits(const Introduction& other) const;
};

}  // namespace rdmacomm::mesh
