// terms.h - the settings that are equal on all nodes of a mesh.
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

/// The traffic from each node to each other node. A value, equal on all nodes.
struct Terms {
  static constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 30;
  static constexpr std::uint32_t kMaxDepth = 4096;
  /// Receives for the notes after each batch. A node waits for the peer after `depth` messages, so at most depth /
  /// batch() + 2 <= 5 notes are in flight.
  static constexpr std::uint32_t kNotes = 16;

  Operation op = Operation::kWrite;  ///< kSend, kWrite, kWriteImm or kRead
  std::uint64_t size = 4096;         ///< bytes of each message, 1..kMaxBytes; the last one may be shorter
  std::uint64_t total = 0;           ///< bytes from each node to each other; 0: duration_us limits the traffic
  std::uint64_t duration_us = 0;     ///< 0: total limits the traffic
  std::uint32_t depth = 0;           ///< messages in flight to one node, 1..kMaxDepth
  bool verify = false;

  /// Whether the target counts each message: it has receives posted, or verifies the written data.
  [[nodiscard]] bool is_counted() const noexcept {
    return op == Operation::kSend || op == Operation::kWriteImm || (op == Operation::kWrite && verify);
  }
  /// After this number of messages, each node sends the peer a note of its progress.
  [[nodiscard]] std::uint32_t batch() const noexcept { return depth < 2 ? 1 : depth / 2; }
  /// Requests that each queue of a queue pair must have room for: messages, and the notes after each batch.
  [[nodiscard]] int queue_depth() const noexcept { return static_cast<int>(depth + kNotes); }
  [[nodiscard]] std::uint64_t block_bytes() const noexcept { return (size + 63) / 64 * 64; }
  /// Whether each message in flight has its own place at its sender. If not, all messages are equal, and are sent from
  /// one place. Data from READ always has a place for each message.
  [[nodiscard]] bool has_own_places() const noexcept { return verify || op == Operation::kRead; }
  /// The memory at this node for the traffic with one other node, in both directions.
  [[nodiscard]] std::uint64_t bytes_per_peer() const noexcept {
    return block_bytes() * (depth + (has_own_places() ? depth : 1));
  }

  /// kInvalidArgument: a value outside its range; the context names its flag.
  [[nodiscard]] Status validate() const;
  /// kBeyondDeviceLimit, kNotSupported: the device does not support a value.
  [[nodiscard]] Status check(const RDMADevice& device) const;
  /// "--op=write --size=4K --total=1M --queue-depth=64": for messages.
  [[nodiscard]] std::string to_text() const;

  void encode(WireWriter& writer) const;
  /// kBadMessage: truncated, or validate() fails.
  [[nodiscard]] static Result<Terms> decode(WireReader& reader);
  bool operator==(const Terms&) const = default;
};

/// send, write, write_imm, read. Returns  kInvalidArgument: none of these
[[nodiscard]] Result<Operation> parse_op(std::string_view name);
[[nodiscard]] const char* op_name(Operation op) noexcept;
/// The default depth: messages of that size for about 1 MiB, 2..64.
[[nodiscard]] std::uint32_t usual_depth(std::uint64_t size) noexcept;

/// The private data that two nodes exchange in the handshake. A value.
struct Introduction {
  std::uint32_t rank = 0;
  std::uint32_t nodes = 0;
  std::uint64_t incarnation = 0;  ///< random: distinguishes a node that came back from its earlier process
  Terms terms = {};
  bool running = false;            ///< traffic has begun
  std::uint64_t remaining_us = 0;  ///< of duration_us, if that is set

  [[nodiscard]] std::vector<std::byte> encode() const;
  /// kBadMessage: wrong format, or out of range; kVersionMismatch
  [[nodiscard]] static Result<Introduction> decode(std::span<const std::byte> bytes);
  /// Whether both nodes belong to one mesh.
  /// Returns  kIncompatiblePeer: they do not; the context has the values of both
  [[nodiscard]] Status check_fits(const Introduction& other) const;
};

}  // namespace rdmacomm::mesh
