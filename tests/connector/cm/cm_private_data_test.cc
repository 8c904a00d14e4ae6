// The library's private data in rdma_cm connection requests.
#include "connector/cm/cm_private_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rdmacomm {
namespace {

using ::testing::HasSubstr;

constexpr CmPrivateData kData{
    .purpose = CmPurpose::kQueuePair, .token = 0x0123456789abcdef, .qpn = 0xabcdef, .slots = 64, .slot_bytes = 1024};

TEST(CmPrivateData, IsDecodedAsItWasEncoded) {
  const auto bytes = kData.encode();
  EXPECT_EQ(bytes.size(), 28U);
  const auto back = CmPrivateData::decode(bytes);
  ASSERT_TRUE(back) << back.status().message();
  EXPECT_EQ(back->purpose, kData.purpose);
  EXPECT_EQ(back->token, kData.token);
  EXPECT_EQ(back->qpn, kData.qpn);
  EXPECT_EQ(back->slots, kData.slots);
  EXPECT_EQ(back->slot_bytes, kData.slot_bytes);
}

TEST(CmPrivateData, TheTransportsPaddingIsNoPartOfIt) {
  auto bytes = kData.encode();
  bytes.resize(196);  // the size of every InfiniBand answer
  EXPECT_TRUE(CmPrivateData::decode(bytes));
}

TEST(CmPrivateData, TruncatedAnywhereItIsRefused) {
  const auto bytes = kData.encode();
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_EQ(CmPrivateData::decode(std::span(bytes).first(length)).code(), Errc::kBadMessage) << length;
  }
}

TEST(CmPrivateData, DataOfAnotherProgramIsRefused) {
  auto bytes = kData.encode();
  bytes[0] = std::byte{'X'};
  const auto refused = CmPrivateData::decode(bytes);
  EXPECT_EQ(refused.code(), Errc::kBadMessage);
  EXPECT_THAT(refused.error().context, HasSubstr("another program"));
}

TEST(CmPrivateData, AnotherVersionNamesBoth) {
  auto bytes = kData.encode();
  bytes[4] = std::byte{9};
  const auto refused = CmPrivateData::decode(bytes);
  EXPECT_EQ(refused.code(), Errc::kVersionMismatch);
  EXPECT_THAT(refused.error().context, HasSubstr("version 9"));
}

TEST(CmPrivateData, AnUnknownPurposeIsNamed) {
  auto bytes = kData.encode();
  bytes[6] = std::byte{77};
  const auto refused = CmPrivateData::decode(bytes);
  EXPECT_EQ(refused.code(), Errc::kBadMessage);
  EXPECT_THAT(refused.error().context, HasSubstr("purpose 77"));
}

}  // namespace
}  // namespace rdmacomm
