#include "endpoint/endpoint_description.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "connector/handshake.h"

namespace rdmacomm {
namespace {

using ::testing::HasSubstr;

EndPointDescription sample() {
  EndPointDescription description;
  description.channels.push_back({"data", {.qpn = 17, .psn = 5, .link_layer = 2, .gid_type = 2, .mtu_bytes = 4096}});
  description.channels.push_back({"control", {.qpn = 18, .psn = 6, .link_layer = 2, .gid_type = 2, .mtu_bytes = 1024}});
  description.gids = {{.type = 2, .gid = {{1}}}, {.type = 1, .gid = {{1}}}};
  description.chosen_gid = 3;
  description.regions.push_back({"inbox", {.address = 0x7f0000001000, .length = 8192, .rkey = 0x101}});
  description.private_data = std::vector<std::byte>(100, std::byte{7});
  return description;
}

TEST(EndPointDescription, IsDecodedAsItWasEncoded) {
  const auto back = EndPointDescription::decode(sample().encode());
  ASSERT_TRUE(back) << back.status().message();
  ASSERT_EQ(back->channels.size(), 2U);
  EXPECT_EQ(back->channel("control")->address.qpn, 18U);
  EXPECT_EQ(back->channel("control")->address.mtu_bytes, 1024U);
  EXPECT_EQ(back->channel("nothing"), nullptr);
  ASSERT_EQ(back->gids.size(), 2U);
  EXPECT_EQ(back->gids[1].to_text(), "RoCE v1 100::");
  EXPECT_EQ(back->chosen_gid, 3U);
  ASSERT_EQ(back->regions.size(), 1U);
  EXPECT_EQ(back->regions[0].region.length, 8192U);
  EXPECT_EQ(back->private_data, sample().private_data);
  EXPECT_EQ(back->channel_names(), "control, data");
}

TEST(EndPointDescription, AnEmptyDescriptionIsValid) {
  EXPECT_TRUE(EndPointDescription::decode(EndPointDescription().encode()));
}

TEST(EndPointDescription, GidsAreLimitedAndTheChosenOneIsOneOfThem) {
  EndPointDescription description;
  EXPECT_FALSE(EndPointDescription::decode(description.encode())->chosen_gid);
  description.gids.assign(EndPointDescription::kMaxGids, {.type = 2, .gid = {{1}}});
  description.chosen_gid = EndPointDescription::kMaxGids - 1;
  EXPECT_TRUE(EndPointDescription::decode(description.encode()));
  description.chosen_gid = EndPointDescription::kMaxGids;
  EXPECT_THAT(EndPointDescription::decode(description.encode()).error().context, HasSubstr("chooses GID number 12"));
  description.gids.resize(EndPointDescription::kMaxGids + 1, {.type = 2, .gid = {{1}}});
  EXPECT_THAT(EndPointDescription::decode(description.encode()).error().context, HasSubstr("13 GIDs; at most 12"));
  description.gids = {{.type = 2}};
  EXPECT_THAT(EndPointDescription::decode(description.encode()).error().context, HasSubstr("a GID is all zeroes"));
}

TEST(EndPointDescription, TheLargestFitsIntoOneMessage) {
  EndPointDescription description;
  const auto long_name = [](int i) { return std::to_string(i) + std::string(HcaConfig::kMaxNameBytes - 4, 'x'); };
  for (int i = 1000; i < 1000 + static_cast<int>(HcaConfig::kMaxChannels); ++i) {
    description.channels.push_back({long_name(i), {.qpn = 1, .mtu_bytes = 4096}});
  }
  for (int i = 1000; i < 1000 + static_cast<int>(HcaConfig::kMaxRegions); ++i)
    description.regions.push_back({long_name(i), {}});
  description.private_data.resize(HcaConfig::kMaxPrivateDataBytes);
  const auto bytes = description.encode();
  EXPECT_LE(bytes.size(), kMaxOfferBytes);
  EXPECT_TRUE(EndPointDescription::decode(bytes));
}

TEST(EndPointDescription, TruncatedOrTooLongIsRefused) {
  auto bytes = sample().encode();
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    ASSERT_EQ(EndPointDescription::decode(std::span(bytes).first(length)).code(), Errc::kBadMessage) << length;
  }
  bytes.push_back(std::byte{0});
  EXPECT_THAT(EndPointDescription::decode(bytes).error().context, HasSubstr("1 extra bytes at its end"));
}

TEST(EndPointDescription, NamesAreUniqueAndPrintable) {
  EndPointDescription twice = sample();
  twice.channels[1].name = "data";
  EXPECT_THAT(EndPointDescription::decode(twice.encode()).error().context,
              HasSubstr("two channels have the name 'data'"));
  EndPointDescription elsewhere = sample();
  elsewhere.more = {"stripe", "data"};
  EXPECT_THAT(EndPointDescription::decode(elsewhere.encode()).error().context,
              HasSubstr("two channels have the name 'data'"));
  elsewhere.more = {"stripe", "stripe"};
  EXPECT_THAT(EndPointDescription::decode(elsewhere.encode()).error().context,
              HasSubstr("two channels have the name 'stripe'"));
  EndPointDescription escape = sample();
  escape.regions[0].name = "\x1b[2J";
  EXPECT_EQ(EndPointDescription::decode(escape.encode()).code(), Errc::kBadMessage);
  EndPointDescription nameless = sample();
  nameless.channels[0].name = "";
  EXPECT_EQ(EndPointDescription::decode(nameless.encode()).code(), Errc::kBadMessage);
}

TEST(EndPointDescription, CountsBeyondTheirBoundAreNamed) {
  EndPointDescription many;
  many.channels.assign(HcaConfig::kMaxChannels + 1, {"x", {.qpn = 1, .mtu_bytes = 4096}});
  EXPECT_THAT(EndPointDescription::decode(many.encode()).error().context, HasSubstr("65 channels"));
  EndPointDescription regions;
  regions.regions.assign(HcaConfig::kMaxRegions + 1, {"x", {}});
  EXPECT_THAT(EndPointDescription::decode(regions.encode()).error().context, HasSubstr("1025 regions"));
  EndPointDescription data;
  data.private_data.resize(HcaConfig::kMaxPrivateDataBytes + 1);
  EXPECT_THAT(EndPointDescription::decode(data.encode()).error().context, HasSubstr("65537 bytes of private data"));
}

TEST(EndPointDescription, AnAddressOutOfRangeNamesItsChannel) {
  EndPointDescription description = sample();
  description.channels[0].address.mtu_bytes = 1500;
  const auto back = EndPointDescription::decode(description.encode());
  EXPECT_EQ(back.code(), Errc::kBadMessage);
  EXPECT_THAT(back.error().context, HasSubstr("channel 'data'"));
}

// Mutated bytes are either refused, or decoded to a description that keeps every limit and encodes to the same bytes
// again.
TEST(EndPointDescriptionFuzz, MutatedDescriptions) {
  constexpr std::uint32_t kSeed = 20240612;
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  std::mt19937 random(kSeed);
  const auto original = sample().encode();
  int accepted = 0;
  for (int round = 0; round < 50'000; ++round) {
    auto bytes = original;
    for (auto count = 1 + random() % 4; count > 0; --count)
      bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    if (random() % 4 == 0) bytes.resize(random() % (bytes.size() + 1));
    const auto description = EndPointDescription::decode(bytes);
    if (!description) {
      ASSERT_EQ(description.code(), Errc::kBadMessage) << round;
      continue;
    }
    ++accepted;
    ASSERT_LE(description->channels.size(), HcaConfig::kMaxChannels);
    ASSERT_EQ(description->encode(), bytes) << round;
  }
  EXPECT_GT(accepted, 0);
}

}  // namespace
}  // namespace rdmacomm
