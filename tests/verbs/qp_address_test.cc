#include "rdmacomm/qp_address.h"

#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <cstring>
#include <random>

namespace rdmacomm {
namespace {

constexpr std::size_t kWireBytes = 40;

QpAddress example() {
  QpAddress address;
  address.qpn = 0x000211;
  address.psn = 0xfedcba;
  address.lid = 0x1234;
  address.link_layer = IBV_LINK_LAYER_ETHERNET;
  address.gid_type = IBV_GID_TYPE_ROCE_V2;
  for (int i = 0; i < 16; ++i) address.gid.raw[static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(i + 1);
  address.mtu_bytes = 2048;
  address.max_read_depth = 16;
  address.pkey = 0x8001;
  address.transport = Transport::kRoce;
  return address;
}

std::vector<std::byte> encoded(const QpAddress& address) {
  const auto bytes = address.encode();
  return {bytes.begin(), bytes.end()};
}

Result<QpAddress> decoded(std::span<const std::byte> bytes) {
  return QpAddress::decode(bytes);
}

TEST(QpAddress, IsDecodedAsItWasEncoded) {
  const QpAddress sent = example();
  const auto bytes = encoded(sent);
  ASSERT_EQ(bytes.size(), kWireBytes);
  const auto got = decoded(bytes);
  ASSERT_TRUE(got.has_value()) << got.error().message();
  EXPECT_EQ(got->qpn, sent.qpn);
  EXPECT_EQ(got->psn, sent.psn);
  EXPECT_EQ(got->lid, sent.lid);
  EXPECT_EQ(got->link_layer, sent.link_layer);
  EXPECT_EQ(got->gid_type, sent.gid_type);
  EXPECT_EQ(got->gid, sent.gid);
  EXPECT_EQ(got->mtu_bytes, sent.mtu_bytes);
  EXPECT_EQ(got->max_read_depth, sent.max_read_depth);
  EXPECT_EQ(got->pkey, sent.pkey);
  EXPECT_EQ(got->transport, sent.transport);
}

TEST(QpAddress, TrailingBytesAreABadMessage) {
  auto bytes = encoded(example());
  bytes.push_back(std::byte{0x5a});
  EXPECT_EQ(QpAddress::decode(bytes).code(), Errc::kBadMessage);
}

TEST(QpAddress, EachTruncationIsABadMessage) {
  const auto bytes = encoded(example());
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    const auto got = decoded(std::span(bytes).first(length));
    EXPECT_EQ(got.code(), Errc::kBadMessage) << "cut to " << length;
  }
}

TEST(QpAddress, ReservedFieldsMustBeZero) {
  auto bytes = encoded(example());
  bytes.back() = std::byte{1};
  EXPECT_EQ(decoded(bytes).code(), Errc::kBadMessage);
}

TEST(QpAddress, FieldsOutsideTheirRangeAreABadMessage) {
  const auto refused = [](auto change) {
    QpAddress address = example();
    change(address);
    return decoded(encoded(address)).code();
  };
  EXPECT_EQ(refused([](QpAddress& a) { a.qpn = 0; }), Errc::kBadMessage);
  EXPECT_EQ(refused([](QpAddress& a) { a.qpn = 0x1000000; }), Errc::kBadMessage);
  EXPECT_EQ(refused([](QpAddress& a) { a.psn = 0x1000000; }), Errc::kBadMessage);
  EXPECT_EQ(refused([](QpAddress& a) { a.mtu_bytes = 0; }), Errc::kBadMessage);
  EXPECT_EQ(refused([](QpAddress& a) { a.mtu_bytes = 1500; }), Errc::kBadMessage);
  EXPECT_FALSE(refused([](QpAddress& a) { a.qpn = 0xffffff; }));
}

// For any input, decoding returns a valid address or kBadMessage.
TEST(QpAddress, SurvivesMutations) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const auto original = encoded(example());
  for (int round = 0; round < 20'000; ++round) {
    auto bytes = original;
    const int changes = 1 + static_cast<int>(random() % 4);
    for (int i = 0; i < changes; ++i) bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    bytes.resize(random() % 4 == 0 ? random() % (kWireBytes + 1) : kWireBytes);
    const auto got = decoded(bytes);
    if (!got) {
      ASSERT_EQ(got.code(), Errc::kBadMessage);
      continue;
    }
    ASSERT_GT(got->qpn, 0U);
    ASSERT_LE(got->qpn, 0xffffffU);
    ASSERT_LE(got->psn, 0xffffffU);
    ASSERT_GE(got->mtu_bytes, 256U);
    ASSERT_LE(got->mtu_bytes, 4096U);
    ASSERT_EQ(encoded(*got), bytes);
  }
}

TEST(QpAddress, TextNamesTheImportantFields) {
  QpAddress address = example();
  const std::uint8_t ipv4[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1};
  std::memcpy(address.gid.raw.data(), ipv4, sizeof(ipv4));
  EXPECT_EQ(address.to_text(), "QPN 0x000211 GID ::ffff:10.0.0.1 (RoCE v2) MTU 2048");
  address.link_layer = IBV_LINK_LAYER_INFINIBAND;
  EXPECT_NE(address.to_text().find("LID 4660"), std::string::npos);
}

}  // namespace
}  // namespace rdmacomm
