// segment.h - what streams send each other: a header, and what follows it.
// Layer: stream, internal.   Wire form: docs/wire_format.md "Segments of a stream"
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "rdmacomm/remote_region.h"
#include "rdmacomm/result.h"

namespace rdmacomm {

/// What a segment is. The numbers travel.
enum class SegmentKind : std::uint8_t {
  kHello = 1,     ///< what its sender is; the first of each side
  kData = 2,      ///< bytes of the stream
  kCredit = 3,    ///< nothing but the header's credit
  kEnd = 4,       ///< the sender writes no more
  kFinished = 5,  ///< the sender has taken all, up to the end
  kAbort = 6,     ///< the sender gives up, because
  kAnnounce = 7,  ///< a part of a large message, to be read where it is. Counts as data
  kTaken = 8,     ///< so many (value) announced parts have been read
};

/// Credits are counted modulo so many: more than two sides can have under way.
constexpr std::uint32_t kCreditModulus = std::uint32_t{1} << 24;

/// What stands in front of each segment, but where immediate data says it. A value.
struct SegmentHeader {
  static constexpr std::size_t kBytes = 16;

  SegmentKind kind = SegmentKind::kData;
  std::uint32_t credit = 0;  ///< data segments that its sender has released since the beginning, modulo kCreditModulus
  std::uint32_t length = 0;  ///< bytes that follow
  std::uint32_t value = 0;   ///< by kind

  void encode(std::span<std::byte, kBytes> bytes) const noexcept;
  /// Of a segment of `segment_bytes` with its header.
  /// Returns  kBadMessage: too short, of no known kind, or of another length than its header says
  [[nodiscard]] static Result<SegmentHeader> decode(std::span<const std::byte, kBytes> bytes,
                                                    std::size_t segment_bytes);
};

/// kData and kCredit as immediate data, where the devices have it: the bytes that follow are the stream's alone, and
/// the receiver finds the rest in the completion.
[[nodiscard]] constexpr std::uint32_t immediate_of(SegmentKind kind, std::uint32_t credit) noexcept {
  return static_cast<std::uint32_t>(kind) << 24 | credit;
}
/// Returns  kBadMessage: of another kind, or a credit with bytes
[[nodiscard]] Result<SegmentHeader> header_of(std::uint32_t immediate, std::size_t segment_bytes);

/// What goes in a stream. The numbers travel.
enum class StreamMode : std::uint8_t { kBytes = 1, kMessages = 2 };

/// The payload of kHello. A value.
struct StreamHello {
  static constexpr std::uint16_t kVersion = 1;
  static constexpr std::size_t kWireBytes = 20;

  StreamMode mode = StreamMode::kBytes;
  bool immediate = false;  ///< its data goes by immediate data
  std::uint32_t block_bytes = 0;
  std::uint32_t read_blocks = 0;
  std::uint32_t part_bytes = 0;  ///< of messages: the largest part that it reads; of bytes: 0

  [[nodiscard]] std::vector<std::byte> encode() const;
  /// Returns  kBadMessage: not a HELLO, or values outside of StreamOptions' ranges; kVersionMismatch
  [[nodiscard]] static Result<StreamHello> decode(std::span<const std::byte> payload);
};

/// The payload of kAnnounce. A value.
struct Announcement {
  static constexpr std::size_t kWireBytes = 36;

  RemoteRegion region{};
  std::uint64_t message_bytes = 0;
  std::uint64_t offset = 0;  ///< of the region in the message

  [[nodiscard]] std::vector<std::byte> encode() const;
  /// Returns  kBadMessage: another length, no bytes, or a region that leaves the message
  [[nodiscard]] static Result<Announcement> decode(std::span<const std::byte> payload);
};

/// The payload of kEnd. A value.
struct StreamEnd {
  std::uint64_t bytes = 0;  ///< that its sender has written

  [[nodiscard]] std::vector<std::byte> encode() const;
  /// Returns  kBadMessage: another length
  [[nodiscard]] static Result<StreamEnd> decode(std::span<const std::byte> payload);
};

/// The payload of kAbort. A value.
struct StreamAbort {
  std::string reason = {};  ///< one line; at most kMaxAbortReason bytes are sent

  [[nodiscard]] std::vector<std::byte> encode() const;
  /// Returns  kBadMessage: truncated, or bytes left over. Unprintable bytes become '?'.
  [[nodiscard]] static Result<StreamAbort> decode(std::span<const std::byte> payload);
};

constexpr std::size_t kMaxAbortReason = 400;
/// Control segments have at most so many bytes behind the header.
constexpr std::size_t kMaxControlBytes = 2 + kMaxAbortReason;

}  // namespace rdmacomm
