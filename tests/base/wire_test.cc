#include "base/wire.h"

#include <gtest/gtest.h>

#include <array>
#include <limits>

namespace rdmacomm {
namespace {

std::vector<int> numbers(std::span<const std::byte> bytes) {
  std::vector<int> result;
  for (const std::byte byte : bytes) result.push_back(static_cast<int>(byte));
  return result;
}

TEST(Wire, IsLittleEndianOnAnyMachine) {
  WireWriter writer;
  writer.put<std::uint8_t>(0x01);
  writer.put<std::uint16_t>(0x0302);
  writer.put<std::uint32_t>(0x07060504);
  writer.put<std::uint64_t>(0x0f0e0d0c0b0a0908);
  EXPECT_EQ(numbers(writer.bytes()), (std::vector<int>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}));
}

TEST(Wire, ReadsTheValuesThatWereWritten) {
  WireWriter writer;
  writer.put<std::uint8_t>(0xff);
  writer.put(std::numeric_limits<std::uint16_t>::max());
  writer.put(std::numeric_limits<std::uint32_t>::max());
  writer.put(std::numeric_limits<std::uint64_t>::max());
  writer.put_text("queue pair");
  writer.put_text("");
  const std::vector<std::byte> bytes = writer.take();
  WireReader reader(bytes);
  EXPECT_EQ(reader.get<std::uint8_t>(), 0xff);
  EXPECT_EQ(reader.get<std::uint16_t>(), 0xffff);
  EXPECT_EQ(reader.get<std::uint32_t>(), 0xffffffff);
  EXPECT_EQ(reader.get<std::uint64_t>(), 0xffffffffffffffff);
  EXPECT_EQ(reader.get_text(), "queue pair");
  EXPECT_EQ(reader.get_text(), "");
  EXPECT_EQ(reader.remaining(), 0U);
  EXPECT_TRUE(reader.ok());
}

TEST(Wire, ReadingPastTheEndGivesZeroesAndStaysNotOk) {
  const std::array<std::byte, 3> bytes{std::byte{1}, std::byte{2}, std::byte{3}};
  WireReader reader(bytes);
  EXPECT_EQ(reader.get<std::uint32_t>(), 0U);
  EXPECT_FALSE(reader.ok());
  EXPECT_EQ(reader.get<std::uint8_t>(), 0U);
  EXPECT_FALSE(reader.ok());
  EXPECT_EQ(reader.remaining(), 0U);
}

TEST(Wire, TextLongerThanTheRestIsEmptyAndNotOk) {
  WireWriter writer;
  writer.put<std::uint16_t>(100);
  writer.put<std::uint8_t>('x');
  WireReader reader(writer.bytes());
  EXPECT_EQ(reader.get_text(), "");
  EXPECT_FALSE(reader.ok());
}

TEST(Wire, TextBeyondTheLengthFieldIsCut) {
  WireWriter writer;
  writer.put_text(std::string(70'000, 'a'));
  WireReader reader(writer.bytes());
  EXPECT_EQ(reader.get_text().size(), 65'535U);
  EXPECT_EQ(reader.remaining(), 0U);
}

}  // namespace
}  // namespace rdmacomm
