#include "stream/segment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

namespace rdmacomm {
namespace {

using ::testing::HasSubstr;

using HeaderBytes = std::array<std::byte, SegmentHeader::kBytes>;

HeaderBytes encoded(const SegmentHeader& header) {
  HeaderBytes bytes{};
  header.encode(bytes);
  return bytes;
}

TEST(SegmentHeader, IsDecodedAsItWasEncoded) {
  const SegmentHeader header{.kind = SegmentKind::kEnd, .credit = 0x00fffffe, .length = 8, .value = 0x01020304};
  const HeaderBytes bytes = encoded(header);
  EXPECT_EQ(bytes[0], std::byte{4});
  EXPECT_EQ(bytes[4], std::byte{0xfe});
  EXPECT_EQ(bytes[12], std::byte{4});
  const auto decoded = SegmentHeader::decode(bytes, 24);
  ASSERT_TRUE(decoded.has_value());
  EXPECT_EQ(decoded->kind, header.kind);
  EXPECT_EQ(decoded->credit, header.credit);
  EXPECT_EQ(decoded->length, header.length);
  EXPECT_EQ(decoded->value, header.value);
}

TEST(SegmentHeader, InvalidHeadersAreRefused) {
  const auto refused = [](const HeaderBytes& bytes, std::size_t segment, const char* why) {
    const auto decoded = SegmentHeader::decode(bytes, segment);
    EXPECT_EQ(decoded.code(), Errc::kBadMessage);
    EXPECT_THAT(decoded.status().message(), HasSubstr(why));
  };
  const HeaderBytes good = encoded({.length = 100});
  EXPECT_TRUE(SegmentHeader::decode(good, 116).has_value());
  refused(good, 15, "its 15 bytes are less");
  refused(good, 0, "its 0 bytes are less");
  refused(good, 115, "its header announces 100 bytes, but 99 bytes follow");
  refused(good, 117, "but 101 bytes follow");
  HeaderBytes kind = good;
  kind[0] = std::byte{0};
  refused(kind, 116, "its kind 0 is unknown");
  kind[0] = std::byte{200};
  refused(kind, 116, "its kind 200 is unknown");
  kind[0] = std::byte{2};
  kind[3] = std::byte{1};
  refused(kind, 116, "its kind 16777218 is unknown");
}

TEST(SegmentHeader, DataAndCreditsCanBeImmediateData) {
  const auto data = header_of(immediate_of(SegmentKind::kData, 0x00abcdef), 7);
  ASSERT_TRUE(data.has_value());
  EXPECT_EQ(data->kind, SegmentKind::kData);
  EXPECT_EQ(data->credit, 0x00abcdefU);
  EXPECT_EQ(data->length, 7U);
  EXPECT_EQ(header_of(immediate_of(SegmentKind::kCredit, 5), 0).value().kind, SegmentKind::kCredit);
  EXPECT_EQ(header_of(immediate_of(SegmentKind::kCredit, 5), 1).code(), Errc::kBadMessage);
  EXPECT_EQ(header_of(immediate_of(SegmentKind::kAbort, 5), 1).code(), Errc::kBadMessage);
  EXPECT_EQ(header_of(0, 0).code(), Errc::kBadMessage);
}

TEST(StreamHello, IsDecodedAsItWasEncoded) {
  const StreamHello hello{.mode = StreamMode::kMessages, .block_bytes = 65536, .read_blocks = 7, .part_bytes = 9};
  const auto bytes = hello.encode();
  EXPECT_EQ(bytes.size(), StreamHello::kWireBytes);
  const auto decoded = StreamHello::decode(bytes);
  ASSERT_TRUE(decoded.has_value()) << decoded.status().message();
  EXPECT_EQ(decoded->mode, StreamMode::kMessages);
  EXPECT_EQ(decoded->block_bytes, 65536U);
  EXPECT_EQ(decoded->read_blocks, 7U);
  EXPECT_EQ(decoded->part_bytes, 9U);
}

TEST(StreamHello, InvalidHellosAreRefused) {
  const auto good = StreamHello{.block_bytes = 4096, .read_blocks = 1}.encode();
  const auto changed = [&](std::size_t at, int value) {
    auto bytes = good;
    bytes[at] = static_cast<std::byte>(value);
    return StreamHello::decode(bytes).code();
  };
  EXPECT_FALSE(StreamHello::decode(good).code());
  EXPECT_EQ(changed(0, 0), Errc::kBadMessage);       // magic
  EXPECT_EQ(changed(4, 2), Errc::kVersionMismatch);  // version
  EXPECT_EQ(changed(6, 0), Errc::kBadMessage);       // mode
  EXPECT_EQ(changed(6, 3), Errc::kBadMessage);
  EXPECT_EQ(changed(7, 2), Errc::kBadMessage);      // immediate data
  EXPECT_EQ(changed(9, 0), Errc::kBadMessage);      // block size of 0 bytes
  EXPECT_EQ(changed(11, 0x41), Errc::kBadMessage);  // block size above 1 GiB
  EXPECT_EQ(changed(13, 0x20), Errc::kBadMessage);  // 8193 blocks
  EXPECT_EQ(changed(16, 1), Errc::kBadMessage);     // parts in a stream of bytes
  EXPECT_EQ(changed(6, 2), Errc::kBadMessage);      // messages without parts
  for (std::size_t bytes = 0; bytes < good.size(); ++bytes) {
    EXPECT_EQ(StreamHello::decode(std::span(good).first(bytes)).code(), Errc::kBadMessage) << bytes;
  }
  auto longer = good;
  longer.push_back({});
  EXPECT_EQ(StreamHello::decode(longer).code(), Errc::kBadMessage);
}

TEST(Announcement, IsDecodedAsItWasEncoded) {
  const Announcement announcement{
      .region = {.address = 4096, .length = 50, .rkey = 3}, .message_bytes = 80, .offset = 30};
  const auto bytes = announcement.encode();
  EXPECT_EQ(bytes.size(), Announcement::kWireBytes);
  const auto decoded = Announcement::decode(bytes);
  ASSERT_TRUE(decoded.has_value()) << decoded.status().message();
  EXPECT_EQ(decoded->region.address, 4096U);
  EXPECT_EQ(decoded->message_bytes, 80U);
  EXPECT_EQ(decoded->offset, 30U);
  for (std::size_t count = 0; count < bytes.size(); ++count) {
    EXPECT_EQ(Announcement::decode(std::span(bytes).first(count)).code(), Errc::kBadMessage) << count;
  }
}

TEST(Announcement, APartBeyondItsMessageIsRefused) {
  const auto code = [](std::uint64_t length, std::uint64_t message, std::uint64_t offset) {
    const Announcement announcement{.region = {.length = length}, .message_bytes = message, .offset = offset};
    return Announcement::decode(announcement.encode()).code();
  };
  EXPECT_FALSE(code(10, 10, 0));
  EXPECT_EQ(code(0, 10, 0), Errc::kBadMessage);
  EXPECT_EQ(code(11, 10, 0), Errc::kBadMessage);
  EXPECT_EQ(code(10, 10, 1), Errc::kBadMessage);
  EXPECT_EQ(code(10, 10, 11), Errc::kBadMessage);
  EXPECT_EQ(code(10, 10, ~std::uint64_t{0}), Errc::kBadMessage);
}

TEST(StreamEnd, IsOneNumber) {
  const auto bytes = StreamEnd{.bytes = 19}.encode();
  ASSERT_TRUE(StreamEnd::decode(bytes).has_value());
  EXPECT_EQ(StreamEnd::decode(bytes)->bytes, 19U);
  EXPECT_EQ(StreamEnd::decode(std::span(bytes).first(7)).code(), Errc::kBadMessage);
  auto longer = bytes;
  longer.push_back({});
  EXPECT_EQ(StreamEnd::decode(longer).code(), Errc::kBadMessage);
}

TEST(StreamAbort, HasItsReasonInOneLine) {
  EXPECT_EQ(StreamAbort::decode(StreamAbort{"the disk is full"}.encode())->reason, "the disk is full");
  EXPECT_EQ(StreamAbort::decode(StreamAbort{"one\ntwo"}.encode())->reason, "one?two");
  const auto longest = StreamAbort{std::string(1000, 'x')}.encode();
  EXPECT_EQ(longest.size(), kMaxControlBytes);
  EXPECT_EQ(StreamAbort::decode(std::span(longest).first(100)).code(), Errc::kBadMessage);
}

}  // namespace
}  // namespace rdmacomm
