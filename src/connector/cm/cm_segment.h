// cm_segment.h - the header of each segment of a CmStream. Private to the layer.
// Wire form: docs/wire_format.md "Segments"
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace rdmacomm {

/// A value.
struct CmSegment {
  static constexpr std::size_t kHeaderBytes = 8;
  static constexpr std::uint16_t kLast = 1;  ///< in `flags`: the sender sends nothing after this segment

  std::uint16_t length = 0;   ///< bytes that follow the header
  std::uint16_t credits = 0;  ///< receives that the sender has posted again, see SegmentWindow
  std::uint16_t flags = 0;    ///< unknown ones are ignored

  [[nodiscard]] std::array<std::byte, kHeaderBytes> encode() const noexcept;
  /// The header at the beginning of a received segment. Empty: the segment is shorter than a header, or has another
  /// length than its header says.
  [[nodiscard]] static std::optional<CmSegment> decode(std::span<const std::byte> segment) noexcept;
};

}  // namespace rdmacomm
