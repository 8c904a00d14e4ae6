#include "lat_bw_benchmark/verification.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "support/pattern.h"

namespace rdmacomm::benchmark {
namespace {

using programs::fill_pattern;
using programs::first_difference;
using programs::pattern_byte;
using testing::HasSubstr;

TEST(Pattern, EveryChangedByteIsFound) {
  for (const std::size_t size : {1U, 2U, 7U, 8U, 9U, 64U, 1001U}) {
    std::vector<std::byte> bytes(size);
    fill_pattern(bytes, 42);
    EXPECT_EQ(first_difference(bytes, 42), size);
    for (std::size_t at = 0; at < size; ++at) {
      EXPECT_EQ(bytes[at], pattern_byte(at, 42));
      bytes[at] ^= std::byte{1};
      EXPECT_EQ(first_difference(bytes, 42), at);
      bytes[at] ^= std::byte{1};
    }
  }
}

TEST(Pattern, OfAnotherSeedIsAnother) {
  std::vector<std::byte> bytes(8);
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    fill_pattern(bytes, seed);
    EXPECT_LT(first_difference(bytes, seed + 1), 8U);
    EXPECT_LT(first_difference(bytes, seed + (std::uint64_t{1} << 32)), 8U);
  }
}

TEST(CorruptOneByte, ChangesOneByteAndNeverTheLast) {
  for (const std::size_t size : {2U, 3U, 8U, 100U}) {
    std::vector<std::byte> bytes(size);
    fill_pattern(bytes, 7);
    corrupt_one_byte(bytes);
    const std::size_t at = first_difference(bytes, 7);
    ASSERT_LT(at, size - 1);
    bytes[at] = pattern_byte(at, 7);
    EXPECT_EQ(first_difference(bytes, 7), size);
  }
}

TEST(Verifier, CountsAndKeepsTheFirstCorruption) {
  std::vector<std::byte> bytes(16);
  fill_pattern(bytes, 1);
  Verifier verifier(true);
  verifier.check(bytes, 1, "a message");
  EXPECT_EQ(verifier.corrupt(), 0U);
  bytes[5] = pattern_byte(5, 1) ^ std::byte{0xff};
  verifier.check(bytes, 1, "a message");
  verifier.check_number(3, 4, "the counter");
  EXPECT_EQ(verifier.checked(), 3U);
  EXPECT_EQ(verifier.corrupt(), 2U);
  EXPECT_THAT(verifier.first_corruption(), HasSubstr("a message: byte 5 of 16 is 0x"));
}

TEST(Verifier, ChecksNothingWhenItIsOff) {
  Verifier verifier(false);
  verifier.check(std::vector<std::byte>(16), 1, "a message");
  verifier.check_number(3, 4, "the counter");
  EXPECT_EQ(verifier.checked() + verifier.corrupt(), 0U);
}

}  // namespace
}  // namespace rdmacomm::benchmark
