#include "stream/segment.h"

#include "base/printable.h"
#include "base/wire.h"
#include "rdmacomm/stream.h"

namespace rdmacomm {
namespace {

constexpr std::uint32_t kMagic = 0x54534452;  // "RDST"

template <typename T>
void put(std::span<std::byte> bytes, std::size_t at, T value) noexcept {
  for (std::size_t i = 0; i < sizeof(T); ++i) bytes[at + i] = static_cast<std::byte>(value >> (8 * i));
}

Error bad_segment(const std::string& why) {
  return make_error(Errc::kBadMessage, "a malformed segment of a stream: " + why);
}

}  // namespace

void SegmentHeader::encode(std::span<std::byte, kBytes> bytes) const noexcept {
  put(bytes, 0, static_cast<std::uint32_t>(kind));
  put(bytes, 4, credit);
  put(bytes, 8, length);
  put(bytes, 12, value);
}

Result<SegmentHeader> SegmentHeader::decode(std::span<const std::byte, kBytes> bytes, std::size_t segment_bytes) {
  if (segment_bytes < kBytes)
    return bad_segment("its " + std::to_string(segment_bytes) + " bytes are less than a header");
  WireReader reader(bytes);
  SegmentHeader header;
  const auto kind = reader.get<std::uint32_t>();
  if (kind < static_cast<unsigned>(SegmentKind::kHello) || kind > static_cast<unsigned>(SegmentKind::kTaken)) {
    return bad_segment("its kind " + std::to_string(kind) + " is unknown");
  }
  header.kind = static_cast<SegmentKind>(kind);
  header.credit = reader.get<std::uint32_t>();
  header.length = reader.get<std::uint32_t>();
  header.value = reader.get<std::uint32_t>();
  if (header.credit >= kCreditModulus)
    return bad_segment("its credit " + std::to_string(header.credit) + " is out of range");
  if (header.length == segment_bytes - kBytes) return header;
  return bad_segment("its header announces " + std::to_string(header.length) + " bytes, but " +
                     std::to_string(segment_bytes - kBytes) + " bytes follow");
}

Result<SegmentHeader> header_of(std::uint32_t immediate, std::size_t segment_bytes) {
  const std::uint32_t kind = immediate >> 24;
  const bool is_credit = kind == static_cast<std::uint32_t>(SegmentKind::kCredit);
  if (!is_credit && kind != static_cast<std::uint32_t>(SegmentKind::kData)) {
    return bad_segment("immediate data cannot have kind " + std::to_string(kind));
  }
  if (is_credit && segment_bytes > 0) return bad_segment("a credit must not have data bytes");
  return SegmentHeader{.kind = is_credit ? SegmentKind::kCredit : SegmentKind::kData,
                       .credit = immediate % kCreditModulus,
                       .length = static_cast<std::uint32_t>(segment_bytes)};
}

std::vector<std::byte> StreamHello::encode() const {
  WireWriter writer;
  writer.put(kMagic);
  writer.put(kVersion);
  writer.put(static_cast<std::uint8_t>(mode));
  writer.put(static_cast<std::uint8_t>(immediate));
  writer.put(block_bytes);
  writer.put(read_blocks);
  writer.put(part_bytes);
  return writer.take();
}

Result<StreamHello> StreamHello::decode(std::span<const std::byte> payload) {
  WireReader reader(payload);
  if (reader.get<std::uint32_t>() != kMagic)
    return bad_segment("its HELLO does not begin with the magic number of streams");
  const auto version = reader.get<std::uint16_t>();
  if (reader.ok() && version != kVersion) {
    return make_error(Errc::kVersionMismatch, "a HELLO of stream version " + std::to_string(version) + "; version " +
                                                  std::to_string(kVersion) + " was expected; update the older program");
  }
  StreamHello hello;
  const auto mode = reader.get<std::uint8_t>();
  const auto immediate = reader.get<std::uint8_t>();
  hello.block_bytes = reader.get<std::uint32_t>();
  hello.read_blocks = reader.get<std::uint32_t>();
  hello.part_bytes = reader.get<std::uint32_t>();
  if (!reader.ok() || reader.remaining() > 0 || immediate > 1)
    return bad_segment("its HELLO has a wrong length or a wrong value");
  if (mode != static_cast<unsigned>(StreamMode::kBytes) && mode != static_cast<unsigned>(StreamMode::kMessages)) {
    return bad_segment("its HELLO has the unknown mode " + std::to_string(mode));
  }
  hello.mode = static_cast<StreamMode>(mode);
  hello.immediate = immediate == 1;
  if (hello.block_bytes < StreamOptions::kMinBlock || hello.block_bytes > StreamOptions::kMaxBlock ||
      hello.read_blocks > static_cast<std::uint32_t>(StreamOptions::kMaxBlocks)) {
    return bad_segment("its HELLO has invalid sizes: " + std::to_string(hello.read_blocks) + " blocks of " +
                       std::to_string(hello.block_bytes) + " bytes");
  }
  if ((hello.part_bytes > 0) != (hello.mode == StreamMode::kMessages)) {
    return bad_segment("is a HELLO with parts of " + std::to_string(hello.part_bytes) + " bytes");
  }
  return hello;
}

std::vector<std::byte> Announcement::encode() const {
  WireWriter writer;
  writer.put_bytes(region.encode());
  writer.put(message_bytes);
  writer.put(offset);
  return writer.take();
}

Result<Announcement> Announcement::decode(std::span<const std::byte> payload) {
  WireReader reader(payload);
  const auto region = RemoteRegion::decode(reader.take(RemoteRegion::kWireBytes));
  if (!region) return bad_segment("in its announcement, " + region.error().context);
  Announcement announcement{.region = *region};
  announcement.message_bytes = reader.get<std::uint64_t>();
  announcement.offset = reader.get<std::uint64_t>();
  if (!reader.ok() || reader.remaining() > 0) return bad_segment("its announcement has a wrong length");
  const bool inside = announcement.offset <= announcement.message_bytes &&
                      region->length <= announcement.message_bytes - announcement.offset;
  if (inside && region->length > 0) return announcement;
  return bad_segment("it announces " + std::to_string(region->length) + " bytes at offset " +
                     std::to_string(announcement.offset) + " of a message of " +
                     std::to_string(announcement.message_bytes) + " bytes");
}

std::vector<std::byte> StreamEnd::encode() const {
  WireWriter writer;
  writer.put(bytes);
  return writer.take();
}

Result<StreamEnd> StreamEnd::decode(std::span<const std::byte> payload) {
  WireReader reader(payload);
  const StreamEnd end{.bytes = reader.get<std::uint64_t>()};
  if (!reader.ok() || reader.remaining() > 0) return bad_segment("its END has a wrong length");
  return end;
}

std::vector<std::byte> StreamAbort::encode() const {
  WireWriter writer;
  writer.put_text(printable(reason, kMaxAbortReason));
  return writer.take();
}

Result<StreamAbort> StreamAbort::decode(std::span<const std::byte> payload) {
  WireReader reader(payload);
  StreamAbort abort{.reason = printable(reader.get_text(), kMaxAbortReason)};
  if (!reader.ok() || reader.remaining() > 0) return bad_segment("its ABORT has no valid reason");
  return abort;
}

}  // namespace rdmacomm
