#include "adapter/gid_agreement.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <span>

namespace rdmacomm {
namespace {

using ::testing::HasSubstr;

OfferedGid gid(std::uint8_t type, const char* text) {
  OfferedGid made{.type = type};
  EXPECT_EQ(inet_pton(AF_INET6, text, made.gid.raw.data()), 1) << text;
  return made;
}
OfferedGid v1(const char* text) {
  return gid(IBV_GID_TYPE_ROCE_V1, text);
}
OfferedGid v2(const char* text) {
  return gid(IBV_GID_TYPE_ROCE_V2, text);
}
OfferedGid ib(const char* text) {
  return gid(IBV_GID_TYPE_IB, text);
}
GidOffer roce(std::vector<OfferedGid> gids) {
  return {Transport::kRoce, std::move(gids)};
}

/// "ours,theirs", or "-".
std::string agreed(const GidOffer& ours, const GidOffer& theirs) {
  const auto pair = agree_on_gids(ours, theirs);
  return pair ? std::to_string(pair->ours) + "," + std::to_string(pair->theirs) : "-";
}

TEST(GidAgreement, ChoosesThePeersFirstGidThatHasALocalMatch) {
  const GidOffer both = roce({v2("::ffff:10.0.0.1"), v1("::ffff:10.0.0.1"), v2("fe80::1"), v1("fe80::1")});
  EXPECT_EQ(agreed(both, roce({v2("::ffff:10.0.0.2"), v1("::ffff:10.0.0.2")})), "0,0");
  EXPECT_EQ(agreed(both, roce({v1("::ffff:10.0.0.2")})), "1,0");
  EXPECT_EQ(agreed(both, roce({v2("2001:db8::2"), v1("fe80::2"), v2("fe80::2")})), "3,1");
  EXPECT_EQ(agreed(roce({v2("fe80::1"), v2("::ffff:10.0.0.1")}), roce({v2("::ffff:10.0.0.2"), v2("fe80::2")})), "1,0");
}

TEST(GidAgreement, TypeVersionAndReachMustBeTheSame) {
  EXPECT_EQ(agreed(roce({v2("::ffff:10.0.0.1")}), roce({v1("::ffff:10.0.0.2")})), "-");
  EXPECT_EQ(agreed(roce({v2("::ffff:10.0.0.1")}), roce({v2("2001:db8::2")})), "-");
  EXPECT_EQ(agreed(roce({v2("2001:db8::1")}), roce({v2("fe80::2")})), "-");
  EXPECT_EQ(agreed(roce({v2("::ffff:127.0.0.1")}), roce({v2("::ffff:10.0.0.2")})), "-");
  EXPECT_EQ(agreed(roce({}), roce({v2("fe80::2")})), "-");
}

TEST(GidAgreement, InfinibandPrefersOneSubnet) {
  const GidOffer ours{Transport::kInfiniBand, {ib("fec0:0:0:1::1"), ib("fe80::1")}};
  EXPECT_EQ(agreed(ours, {Transport::kInfiniBand, {ib("fe80::2"), ib("fec0:0:0:1::2")}}), "1,0");
  EXPECT_EQ(agreed(ours, {Transport::kInfiniBand, {ib("fec0:0:0:2::2")}}), "0,0");  // through a router
}

TEST(GidAgreement, TwoInfinibandSubnetsCauseAWarning) {
  const Gid here = ib("fec0:0:0:1::1").gid;
  const auto warning = [&](Transport transport, const char* peer) {
    return router_warning(transport, here, ib(peer).gid);
  };
  EXPECT_THAT(warning(Transport::kInfiniBand, "fec0:0:0:2::1"), HasSubstr("ConnectorKind::kCm"));
  EXPECT_EQ(warning(Transport::kInfiniBand, "fec0:0:0:1::2"), "");
  EXPECT_EQ(warning(Transport::kRoce, "fec0:0:0:2::1"), "") << "Ethernet's routers are found by the host";
}

TEST(GidAgreement, ARefusalListsBothOffers) {
  const auto refused = agree_on_gids(roce({v2("::ffff:10.0.0.1")}), roce({v1("fe80::7")}));
  EXPECT_EQ(refused.code(), Errc::kIncompatiblePeer);
  EXPECT_THAT(refused.error().context, HasSubstr("local: RoCE v2 ::ffff:10.0.0.1; peer: RoCE v1 fe80::7"));
  EXPECT_THAT(agree_on_gids(roce({}), roce({v1("fe80::7")})).error().context, HasSubstr("local: none"));
}

TEST(GidAgreement, OtherTransportsAreRefused) {
  const auto refused = agree_on_gids(roce({v2("::ffff:10.0.0.1")}), {Transport::kSoftware, {v2("::ffff:10.0.0.1")}});
  EXPECT_EQ(refused.code(), Errc::kIncompatiblePeer);
  EXPECT_THAT(refused.error().context, HasSubstr("local: RoCE; peer: software device"));
}

TEST(OfferedGid, IsDecodedAsItWasEncoded) {
  WireWriter writer;
  v2("::ffff:10.0.0.1").encode(writer);
  const auto bytes = writer.take();
  ASSERT_EQ(bytes.size(), OfferedGid::kWireBytes);
  WireReader reader(bytes);
  const auto back = OfferedGid::decode(reader);
  ASSERT_TRUE(back) << back.error().message();
  EXPECT_EQ(back->to_text(), "RoCE v2 ::ffff:10.0.0.1");
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    WireReader cut{std::span(bytes).first(length)};
    EXPECT_EQ(OfferedGid::decode(cut).code(), Errc::kBadMessage) << length;
  }
}

TEST(OfferedGid, AGidOfZeroesIsRefused) {
  const std::vector<std::byte> zeroes(OfferedGid::kWireBytes);
  WireReader reader(zeroes);
  EXPECT_EQ(OfferedGid::decode(reader).code(), Errc::kBadMessage);
}

}  // namespace
}  // namespace rdmacomm
