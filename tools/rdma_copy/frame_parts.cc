#include "rdma_copy/frame_parts.h"

#include <algorithm>
#include <string>

#include "base/wire.h"

namespace rdmacomm::copying {
namespace {

void put_number(std::span<std::byte> to, std::uint64_t value, std::size_t bytes) noexcept {
  for (std::size_t i = 0; i < bytes; ++i) to[i] = static_cast<std::byte>(value >> (8 * i));
}

}  // namespace

void put_frame_head(std::span<std::byte> to, FrameKind kind, std::size_t length) noexcept {
  put_number(to, static_cast<std::uint8_t>(kind), 4);
  put_number(to.subspan(4), length, 4);
}

void put_data_head(std::span<std::byte> to, std::uint64_t offset, std::size_t padding, std::size_t count) noexcept {
  put_frame_head(to, FrameKind::kData, kDataHead - kFrameHead + padding + count);
  put_number(to.subspan(kFrameHead), offset, sizeof(std::uint64_t));
  put_number(to.subspan(kFrameHead + sizeof(std::uint64_t)), padding, sizeof(std::uint32_t));
  std::ranges::fill(to.subspan(kDataHead, padding), std::byte{0});
}

Result<std::optional<FramePart>> take_frame(std::span<const std::byte>& rest) {
  if (!rest.empty() && rest.front() == std::byte{0}) rest = {};
  if (rest.empty()) return std::optional<FramePart>();
  WireReader reader(rest);
  const auto kind = reader.get<std::uint32_t>();
  const auto length = reader.get<std::uint32_t>();
  if (!reader.ok() || kind > static_cast<std::uint32_t>(FrameKind::kPath) || length > reader.remaining()) {
    return make_error(Errc::kBadMessage, "an invalid frame has arrived: kind " + std::to_string(kind) + ", " +
                                             std::to_string(length) + " bytes, in the last " +
                                             std::to_string(rest.size()) + " bytes of a block");
  }
  const FramePart part{.kind = static_cast<FrameKind>(kind), .payload = rest.subspan(kFrameHead, length)};
  rest = rest.subspan(kFrameHead + length);
  return std::optional(part);
}

Result<std::uint64_t> take_offset(std::span<const std::byte>& payload) {
  WireReader reader(payload);
  const auto offset = reader.get<std::uint64_t>();
  const auto padding = reader.get<std::uint32_t>();
  if (!reader.ok() || padding >= reader.remaining())
    return make_error(Errc::kBadMessage, "a data frame with an invalid header has arrived");
  payload = payload.last(reader.remaining() - padding);
  return offset;
}

}  // namespace rdmacomm::copying
