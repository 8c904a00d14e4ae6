#include "connector/cm/cm_segment.h"

#include "base/wire.h"

namespace rdmacomm {

std::array<std::byte, CmSegment::kHeaderBytes> CmSegment::encode() const noexcept {
  std::array<std::byte, kHeaderBytes> bytes{};
  std::size_t at = 0;
  for (const std::uint16_t field : {length, credits, flags}) {
    bytes[at++] = static_cast<std::byte>(field);
    bytes[at++] = static_cast<std::byte>(field >> 8);
  }
  return bytes;
}

std::optional<CmSegment> CmSegment::decode(std::span<const std::byte> segment) noexcept {
  WireReader reader(segment);
  CmSegment header;
  header.length = reader.get<std::uint16_t>();
  header.credits = reader.get<std::uint16_t>();
  header.flags = reader.get<std::uint16_t>();
  (void)reader.get<std::uint16_t>();  // reserved
  if (!reader.ok() || reader.remaining() != header.length) return {};
  return header;
}

}  // namespace rdmacomm
