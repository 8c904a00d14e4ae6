#include "rdmacomm/remote_region.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>

namespace rdmacomm {
namespace {

constexpr RemoteRegion kRegion{0x7f0012345000, 4096, 0x101};
constexpr std::size_t kWireBytes = 20;

std::vector<std::byte> encoded(const RemoteRegion& region) {
  const auto bytes = region.encode();
  return {bytes.begin(), bytes.end()};
}

Result<RemoteRegion> decoded(std::span<const std::byte> bytes) {
  return RemoteRegion::decode(bytes);
}

TEST(RemoteRegion, IsDecodedAsItWasEncoded) {
  const auto bytes = encoded(kRegion);
  ASSERT_EQ(bytes.size(), kWireBytes);
  const auto got = decoded(bytes);
  ASSERT_TRUE(got.has_value());
  EXPECT_EQ(got->address, kRegion.address);
  EXPECT_EQ(got->length, kRegion.length);
  EXPECT_EQ(got->rkey, kRegion.rkey);
}

TEST(RemoteRegion, EachTruncationIsABadMessage) {
  const auto bytes = encoded(kRegion);
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_EQ(decoded(std::span(bytes).first(length)).code(), Errc::kBadMessage) << "cut to " << length;
  }
}

TEST(RemoteRegion, ARangeThatWrapsAroundIsABadMessage) {
  constexpr auto kMax = std::numeric_limits<std::uint64_t>::max();
  EXPECT_EQ(decoded(encoded({kMax, 1, 0})).code(), Errc::kBadMessage);
  EXPECT_EQ(decoded(encoded({2, kMax - 1, 0})).code(), Errc::kBadMessage);
  EXPECT_TRUE(decoded(encoded({1, kMax - 1, 0})).has_value());
}

TEST(RemoteRegion, SurvivesMutations) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const auto original = encoded(kRegion);
  for (int round = 0; round < 20'000; ++round) {
    auto bytes = original;
    for (int i = 0; i < 3; ++i) bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    const auto got = decoded(bytes);
    if (!got) {
      ASSERT_EQ(got.code(), Errc::kBadMessage);
      continue;
    }
    ASSERT_GE(got->address + got->length, got->address);
    ASSERT_EQ(encoded(*got), bytes);
  }
}

TEST(RemoteRegion, SlicesStayInside) {
  const auto middle = kRegion.slice(1000, 96);
  ASSERT_TRUE(middle.has_value());
  EXPECT_EQ(middle->address, kRegion.address + 1000);
  EXPECT_EQ(middle->length, 96U);
  EXPECT_EQ(middle->rkey, kRegion.rkey);
  EXPECT_TRUE(kRegion.slice(0, 4096).has_value());
  EXPECT_TRUE(kRegion.slice(4096, 0).has_value());
  EXPECT_EQ(kRegion.slice(0, 4097).code(), Errc::kInvalidArgument);
  EXPECT_EQ(kRegion.slice(4097, 0).code(), Errc::kInvalidArgument);
  EXPECT_EQ(kRegion.slice(1, std::numeric_limits<std::uint64_t>::max()).code(), Errc::kInvalidArgument);
}

TEST(RemoteRegion, FromSkipsTheFirstBytes) {
  const RemoteRegion rest = kRegion.slice_unchecked(4000);
  EXPECT_EQ(rest.address, kRegion.address + 4000);
  EXPECT_EQ(rest.length, 96U);
}

TEST(RemoteRegion, TextNamesAddressLengthAndKey) {
  EXPECT_EQ(kRegion.to_text(), "[0x7f0012345000, 4096 bytes, rkey 0x101]");
}

}  // namespace
}  // namespace rdmacomm
