// Two endpoints agree on GIDs: if one has a configured GID, the other chooses a matching one, or both report why that
// is impossible.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "endpoint/endpoint_pair.h"

namespace rdmacomm {
namespace {

using testing::data_of;
using ::testing::HasSubstr;

struct Ends {
  std::shared_ptr<EndPointCore> client;
  std::shared_ptr<EndPointCore> server;
};

std::shared_ptr<EndPointCore> make(std::unique_ptr<Connector> connector, const DeviceOptions& options) {
  DeviceOptions named = options;
  named.name = "soft0";
  auto device = DeviceCore::open(named);
  EXPECT_TRUE(device) << device.status().message();
  auto made = EndPointCore::create({.device = std::move(*device), .connector = std::move(connector), .config = {}});
  EXPECT_TRUE(made) << made.status().message();
  return std::move(*made);
}

Ends make_ends(const DeviceOptions& client, const DeviceOptions& server) {
  testing::TcpPair tcp;
  testing::EndPointPair::introduce(*tcp.client, *tcp.server);
  return {make(std::move(tcp.client), client), make(std::move(tcp.server), server)};
}

const QpAddress& address(const EndPointCore& endpoint) {
  return data_of(endpoint).adapter().address();
}

/// The steps that sessions perform: offer, answer, connect.
Status connect(const Ends& ends) {
  Status status = ends.server->set_peer(ends.client->description());
  if (status) status = ends.client->set_peer(ends.server->description());
  if (status) status = ends.server->connect(testing::soon());
  if (status) status = ends.client->connect(testing::soon());
  return status;
}

void expect_connected_by(const Ends& ends, std::uint8_t type) {
  const Status connected = connect(ends);
  ASSERT_TRUE(connected) << connected.message();
  for (const auto& end : {ends.client, ends.server}) {
    EXPECT_EQ(address(*end).gid_type, type);
    EXPECT_EQ(data_of(*end).adapter().remote_address()->gid_type, type);
  }
  EXPECT_EQ(data_of(*ends.client).adapter().remote_address()->to_text(), address(*ends.server).to_text());
  EXPECT_EQ(data_of(*ends.server).adapter().remote_address()->to_text(), address(*ends.client).to_text());
}

TEST(GidNegotiation, UsesRoceV2ByDefault) {
  expect_connected_by(make_ends({}, {}), IBV_GID_TYPE_ROCE_V2);
}

TEST(GidNegotiation, TheTypeThatOneEndRequiresIsUsedByBoth) {
  expect_connected_by(make_ends({.gid_type = GidType::kRoceV1}, {}), IBV_GID_TYPE_ROCE_V1);
  expect_connected_by(make_ends({}, {.gid_type = GidType::kRoceV1}), IBV_GID_TYPE_ROCE_V1);
}

TEST(GidNegotiation, TheIndexThatOneEndRequiresDecidesForBoth) {
  // Index 0 of soft0 is its link-local GID, RoCE v1.
  const Ends ends = make_ends({.gid_index = 0}, {});
  expect_connected_by(ends, IBV_GID_TYPE_ROCE_V1);
  EXPECT_EQ(address(*ends.server).gid.raw[0], 0xfe);
}

TEST(GidNegotiation, IncompatibleRequirementsAreRefusedWithBothOffers) {
  const Ends ends = make_ends({.gid_type = GidType::kRoceV1}, {.gid_type = GidType::kRoceV2});
  const Status refused = ends.server->set_peer(ends.client->description());
  EXPECT_EQ(refused.code(), Errc::kIncompatiblePeer);
  EXPECT_THAT(refused.error().context, HasSubstr("local: RoCE v2 "));
  EXPECT_THAT(refused.error().context, HasSubstr("; peer: RoCE v1 "));
}

TEST(GidNegotiation, APeerOfAnotherTransportIsRefused) {
  const Ends ends = make_ends({}, {});
  EndPointDescription description = ends.client->description();
  for (auto& channel : description.channels) channel.address.transport = Transport::kRoce;
  const Status refused = ends.server->set_peer(description);
  EXPECT_EQ(refused.code(), Errc::kIncompatiblePeer);
  EXPECT_THAT(refused.error().context, HasSubstr("local: software device; peer: RoCE"));
}

TEST(GidNegotiation, AChoiceThatWasNotOfferedIsABadMessage) {
  const Ends ends = make_ends({.gid_index = 1}, {});
  ASSERT_TRUE(ends.server->set_peer(ends.client->description()));
  EndPointDescription answer = ends.server->description();
  EXPECT_EQ(answer.chosen_gid, 0U);
  answer.chosen_gid = 1;
  const Status refused = ends.client->set_peer(answer);
  EXPECT_EQ(refused.code(), Errc::kBadMessage);
  EXPECT_THAT(refused.error().context, HasSubstr("chose GID number 1, but only 1 GIDs"));
}

}  // namespace
}  // namespace rdmacomm
