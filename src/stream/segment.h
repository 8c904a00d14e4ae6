// segment.h - the segments that streams send: a header and a payload.
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

/// The kind of a segment. The numbers are part of the wire format.
enum class SegmentKind : std::uint8_t {
  kHello = 1,     ///< describes its sender; the first segment of each end
  kData = 2,      ///< bytes of the stream
  kCredit = 3,    ///< only carries the credit in the header
  kEnd = 4,       ///< the sender writes no more data
  kFinished = 5,  ///< the sender has taken all data, up to the end
  kAbort = 6,     ///< the sender gives up; the payload has the reason
  kAnnounce = 7,  ///< a part of a large message, which the peer reads with a READ. Counts as data
  kTaken = 8,     ///< `value` announced parts have been read
};

/// Credits are counted modulo this number. It is larger than the number of segments that two ends can have in flight.
constexpr std::uint32_t kCreditModulus = std::uint32_t{1} << 24;

/// The header of a segment. Segments with immediate data have no header. A value.
struct SegmentHeader {
  static constexpr std::size_t kBytes = 16;

  SegmentKind kind = SegmentKind::kData;
  std::uint32_t credit = 0;  ///< data segments that its sender has released since the start, modulo kCreditModulus
  std::uint32_t length = 0;  ///< bytes of the payload
  std::uint32_t value = 0;   ///< depends on the kind

  void encode(std::span<std::byte, kBytes> bytes) const noexcept;
  /// Reads the header of a segment. `segment_bytes` includes the header.
  /// Returns  kBadMessage: too short, of an unknown kind, or of another length than its header says
  [[nodiscard]] static Result<SegmentHeader> decode(std::span<const std::byte, kBytes> bytes,
                                                    std::size_t segment_bytes);
};

/// A kData or kCredit header as immediate data, if the devices support it. The segment then has a payload only, and the
/// receiver finds the header in the completion.
[[nodiscard]] constexpr std::uint32_t immediate_of(SegmentKind kind, std::uint32_t credit) noexcept {
  return static_cast<std::uint32_t>(kind) << 24 | credit;
}
/// Returns  kBadMessage: another kind, or a credit with a payload
[[nodiscard]] Result<SegmentHeader> header_of(std::uint32_t immediate, std::size_t segment_bytes);

/// The content of a stream. The numbers are part of the wire format.
enum class StreamMode : std::uint8_t { kBytes = 1, kMessages = 2 };

/// The payload of kHello. A value.
struct StreamHello {
  static constexpr std::uint16_t kVersion = 1;
  static constexpr std::size_t kWireBytes = 20;

  StreamMode mode = StreamMode::kBytes;
  bool immediate = false;  ///< whether its data uses immediate data
  std::uint32_t block_bytes = 0;
  std::uint32_t read_blocks = 0;
  std::uint32_t part_bytes = 0;  ///< messages: the largest part that it can read; bytes: 0

  [[nodiscard]] std::vector<std::byte> encode() const;
  /// Returns  kBadMessage: not a HELLO, or values outside the ranges of StreamOptions; kVersionMismatch
  [[nodiscard]] static Result<StreamHello> decode(std::span<const std::byte> payload);
};

/// The payload of kAnnounce. A value.
struct Announcement {
  static constexpr std::size_t kWireBytes = 36;

  RemoteRegion region{};
  std::uint64_t message_bytes = 0;
  std::uint64_t offset = 0;  ///< of the region in the message

  [[nodiscard]] std::vector<std::byte> encode() const;
  /// Returns  kBadMessage: another length, no bytes, or a region beyond the end of the message
  [[nodiscard]] static Result<Announcement> decode(std::span<const std::byte> payload);
};

/// The payload of kEnd. A value.
struct StreamEnd {
  std::uint64_t bytes = 0;  ///< bytes that its sender has written

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
/// Maximum payload of a control segment, in bytes.
constexpr std::size_t kMaxControlBytes = 2 + kMaxAbortReason;

}  // namespace rdmacomm
