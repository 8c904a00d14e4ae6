#include "endpoint/endpoint_card.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "connector/handshake.h"

namespace rdmacomm {
namespace {

using ::testing::HasSubstr;

EndPointCard sample() {
  EndPointCard card;
  card.channels.push_back({"data", {.qpn = 17, .psn = 5, .link_layer = 2, .gid_type = 2, .mtu_bytes = 4096}});
  card.channels.push_back({"control", {.qpn = 18, .psn = 6, .link_layer = 2, .gid_type = 2, .mtu_bytes = 1024}});
  card.gids = {{.type = 2, .gid = {{1}}}, {.type = 1, .gid = {{1}}}};
  card.chosen_gid = 3;
  card.regions.push_back({"inbox", {.address = 0x7f0000001000, .length = 8192, .rkey = 0x101}});
  card.private_data = std::vector<std::byte>(100, std::byte{7});
  return card;
}

TEST(EndPointCard, ComesBackAsItWasSent) {
  const auto back = EndPointCard::decode(sample().encode());
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

TEST(EndPointCard, AnEmptyOneIsFine) {
  EXPECT_TRUE(EndPointCard::decode(EndPointCard().encode()));
}

TEST(EndPointCard, GidsAreFewAndTheChosenOneIsOneOfThem) {
  EndPointCard card;
  EXPECT_FALSE(EndPointCard::decode(card.encode())->chosen_gid);
  card.gids.assign(EndPointCard::kMaxGids, {.type = 2, .gid = {{1}}});
  card.chosen_gid = EndPointCard::kMaxGids - 1;
  EXPECT_TRUE(EndPointCard::decode(card.encode()));
  card.chosen_gid = EndPointCard::kMaxGids;
  EXPECT_THAT(EndPointCard::decode(card.encode()).error().context, HasSubstr("chooses GID number 12"));
  card.gids.resize(EndPointCard::kMaxGids + 1, {.type = 2, .gid = {{1}}});
  EXPECT_THAT(EndPointCard::decode(card.encode()).error().context, HasSubstr("13 GIDs; at most 12"));
  card.gids = {{.type = 2}};
  EXPECT_THAT(EndPointCard::decode(card.encode()).error().context, HasSubstr("a GID is all zeroes"));
}

TEST(EndPointCard, TheLargestFitsIntoOneMessage) {
  EndPointCard card;
  const auto long_name = [](int i) { return std::to_string(i) + std::string(HcaConfig::kMaxNameBytes - 4, 'x'); };
  for (int i = 1000; i < 1000 + static_cast<int>(HcaConfig::kMaxChannels); ++i) {
    card.channels.push_back({long_name(i), {.qpn = 1, .mtu_bytes = 4096}});
  }
  for (int i = 1000; i < 1000 + static_cast<int>(HcaConfig::kMaxRegions); ++i)
    card.regions.push_back({long_name(i), {}});
  card.private_data.resize(HcaConfig::kMaxPrivateDataBytes);
  const auto bytes = card.encode();
  EXPECT_LE(bytes.size(), kMaxOfferBytes);
  EXPECT_TRUE(EndPointCard::decode(bytes));
}

TEST(EndPointCard, TruncatedOrTooLongIsRefused) {
  auto bytes = sample().encode();
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    ASSERT_EQ(EndPointCard::decode(std::span(bytes).first(length)).code(), Errc::kBadMessage) << length;
  }
  bytes.push_back(std::byte{0});
  EXPECT_THAT(EndPointCard::decode(bytes).error().context, HasSubstr("1 extra bytes at its end"));
}

TEST(EndPointCard, NamesAreUniqueAndPrintable) {
  EndPointCard twice = sample();
  twice.channels[1].name = "data";
  EXPECT_THAT(EndPointCard::decode(twice.encode()).error().context, HasSubstr("two channels have the name 'data'"));
  EndPointCard elsewhere = sample();
  elsewhere.more = {"stripe", "data"};
  EXPECT_THAT(EndPointCard::decode(elsewhere.encode()).error().context, HasSubstr("two channels have the name 'data'"));
  elsewhere.more = {"stripe", "stripe"};
  EXPECT_THAT(EndPointCard::decode(elsewhere.encode()).error().context,
              HasSubstr("two channels have the name 'stripe'"));
  EndPointCard escape = sample();
  escape.regions[0].name = "\x1b[2J";
  EXPECT_EQ(EndPointCard::decode(escape.encode()).code(), Errc::kBadMessage);
  EndPointCard nameless = sample();
  nameless.channels[0].name = "";
  EXPECT_EQ(EndPointCard::decode(nameless.encode()).code(), Errc::kBadMessage);
}

TEST(EndPointCard, CountsBeyondTheirBoundAreNamed) {
  EndPointCard many;
  many.channels.assign(HcaConfig::kMaxChannels + 1, {"x", {.qpn = 1, .mtu_bytes = 4096}});
  EXPECT_THAT(EndPointCard::decode(many.encode()).error().context, HasSubstr("65 channels"));
  EndPointCard regions;
  regions.regions.assign(HcaConfig::kMaxRegions + 1, {"x", {}});
  EXPECT_THAT(EndPointCard::decode(regions.encode()).error().context, HasSubstr("1025 regions"));
  EndPointCard data;
  data.private_data.resize(HcaConfig::kMaxPrivateDataBytes + 1);
  EXPECT_THAT(EndPointCard::decode(data.encode()).error().context, HasSubstr("65537 bytes of private data"));
}

TEST(EndPointCard, AnAddressOutOfRangeNamesItsChannel) {
  EndPointCard card = sample();
  card.channels[0].address.mtu_bytes = 1500;
  const auto back = EndPointCard::decode(card.encode());
  EXPECT_EQ(back.code(), Errc::kBadMessage);
  EXPECT_THAT(back.error().context, HasSubstr("channel 'data'"));
}

// Mutated bytes are either refused, or decoded to a card that keeps every limit and encodes to the same bytes again.
TEST(EndPointCardFuzz, MutatedCards) {
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
    const auto card = EndPointCard::decode(bytes);
    if (!card) {
      ASSERT_EQ(card.code(), Errc::kBadMessage) << round;
      continue;
    }
    ++accepted;
    ASSERT_LE(card->channels.size(), HcaConfig::kMaxChannels);
    ASSERT_EQ(card->encode(), bytes) << round;
  }
  EXPECT_GT(accepted, 0);
}

}  // namespace
}  // namespace rdmacomm
