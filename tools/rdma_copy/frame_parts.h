// frame_parts.h - the encoding of frames in a block of a stream.   Wire form: docs/wire_format.md "Copies"
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "rdmacomm/result.h"

namespace rdmacomm::copying {

enum class FrameKind : std::uint8_t {
  kPad = 0,  ///< the rest of the block is unused
  kJob = 1,
  kDirectory = 2,
  kLeave = 3,
  kFile = 4,
  kLink = 5,
  kData = 6,
  kHole = 7,
  kSame = 8,
  kFileEnd = 9,
  kHave = 10,
  kHashes = 11,
  kFailure = 12,
  kEnd = 13,
  kResult = 14,
  kPath = 15,
};
inline constexpr std::size_t kFrameHead = 8;  ///< kind, and the length of the payload
inline constexpr std::size_t kDataHead =
    kFrameHead + sizeof(std::uint64_t) + sizeof(std::uint32_t);  ///< of a kData frame

/// Writes the header of a frame: kFrameHead bytes.
void put_frame_head(std::span<std::byte> to, FrameKind kind, std::size_t length) noexcept;
/// Writes the header of a kData frame, kDataHead bytes, and `padding` zeroes after it; `count` bytes of the file
/// follow.
void put_data_head(std::span<std::byte> to, std::uint64_t offset, std::size_t padding, std::size_t count) noexcept;

/// A frame in a block. A value; does not own the payload.
struct FramePart {
  FrameKind kind = FrameKind::kPad;
  std::span<const std::byte> payload = {};
};
/// Takes the next frame off the rest of a block. Empty: no frame is left.
/// Returns  kBadMessage: the next bytes are no frame
[[nodiscard]] Result<std::optional<FramePart>> take_frame(std::span<const std::byte>& rest);

/// Takes the offset and the padding off the payload of a kData frame.
/// Returns  kBadMessage: no offset, or no bytes after it
[[nodiscard]] Result<std::uint64_t> take_offset(std::span<const std::byte>& payload);

}  // namespace rdmacomm::copying
