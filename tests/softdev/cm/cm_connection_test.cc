// Connections between identifiers of rdma_cm, from the request to the end.
#include <sys/socket.h>

#include <memory>

#include "softdev/cm/cm_message.h"
#include "softdev/cm/cm_scene.h"
#include "softdev/cm/port_claim.h"
#include "softdev/shared/unix_packet.h"
#include "support/forked_child.h"

namespace rdmacomm::softdev::test {
namespace {

constexpr int kConsumerDefined = static_cast<int>(CmReason::kConsumerDefined);
constexpr int kNoListener = static_cast<int>(CmReason::kNoListener);

TEST(CmConnection, IsEstablishedAndEnds) {
  TwoIds ids;
  const auto request = ids.request("hello");
  EXPECT_EQ(request.uid, 100U) << "the listener's";
  EXPECT_EQ(request.param.conn.qp_num, 0x123456U);
  EXPECT_EQ(private_data(request.param.conn, 5), "hello");
  EXPECT_EQ(request.param.conn.responder_resources, 2) << "as many as the peer will use";
  EXPECT_EQ(request.param.conn.initiator_depth, 3);

  ASSERT_EQ(ids.server.accept(ids.accepted, parameters("welcome", 0x654321), 300), 0);
  const auto response = ids.client.expect(CmEventType::kConnectResponse);
  EXPECT_EQ(response.uid, 200U);
  EXPECT_EQ(response.param.conn.qp_num, 0x654321U);
  EXPECT_EQ(private_data(response.param.conn, 7), "welcome");
  EXPECT_FALSE(ids.server.has_event()) << "not before the initiator is ready";

  ASSERT_EQ(ids.client.confirm(ids.initiator), 0);
  EXPECT_EQ(ids.server.expect(CmEventType::kEstablished).uid, 300U);

  ASSERT_EQ(ids.client.disconnect(ids.initiator), 0);
  EXPECT_EQ(ids.server.expect(CmEventType::kDisconnected).uid, 300U);
  ids.client.expect(CmEventType::kDisconnected);
  ids.client.expect(CmEventType::kTimeWaitExit);
  EXPECT_EQ(ids.client.destroy(ids.initiator), 5U);
}

TEST(CmConnection, HasTheAttributesOfBothSides) {
  TwoIds ids;
  ids.request();
  const auto at_server = ids.server.attributes(ids.accepted, IBV_QPS_RTR);
  EXPECT_EQ(at_server.dest_qp_num, 0x123456U);
  EXPECT_EQ(at_server.max_dest_rd_atomic, 2) << "the depth of the initiator";
  EXPECT_NE(at_server.qp_attr_mask & IBV_QP_DEST_QPN, 0U);
  ASSERT_EQ(ids.server.accept(ids.accepted, parameters("", 0x654321)), 0);
  ids.client.expect(CmEventType::kConnectResponse);
  const auto at_client = ids.client.attributes(ids.initiator, IBV_QPS_RTR);
  EXPECT_EQ(at_client.dest_qp_num, 0x654321U);
  EXPECT_EQ(at_client.rq_psn, ids.server.attributes(ids.accepted, IBV_QPS_RTS).sq_psn);
  EXPECT_EQ(at_server.rq_psn, ids.client.attributes(ids.initiator, IBV_QPS_RTS).sq_psn);
  EXPECT_EQ(ids.client.attributes(ids.initiator, IBV_QPS_RTS).rnr_retry, 6);
  EXPECT_EQ(ids.client.attributes(ids.initiator, IBV_QPS_SQD).qp_state, 0U) << "not a state of connecting";
}

TEST(CmConnection, IsRejectedWithTheListenersReason) {
  TwoIds ids;
  ids.request();
  ASSERT_EQ(ids.server.reject(ids.accepted, "full"), 0);
  const auto rejected = ids.client.expect(CmEventType::kRejected, kConsumerDefined);
  EXPECT_EQ(private_data(rejected.param.conn, 4), "full");
  EXPECT_EQ(ids.client.confirm(ids.initiator), EINVAL);
}

TEST(CmConnection, IsRejectedIfTheListenersIdentifierIsDestroyed) {
  TwoIds ids;
  ids.request();
  EXPECT_EQ(ids.server.destroy(ids.accepted), 0U) << "the request is an event of the listener";
  ids.client.expect(CmEventType::kRejected, kConsumerDefined);
}

TEST(CmConnection, RequestsThatNobodyReadEndWithTheListener) {
  TwoIds ids;
  ASSERT_EQ(ids.client.connect(ids.initiator, parameters()), 0);
  ASSERT_TRUE(readable(ids.server.fd, 20'000));
  EXPECT_EQ(ids.server.destroy(ids.listener), 0U);
  EXPECT_FALSE(ids.server.has_event());
  ids.client.expect(CmEventType::kRejected, kConsumerDefined);
}

TEST(CmConnection, IsRejectedByTheInitiatorToo) {
  TwoIds ids;
  ids.request();
  ASSERT_EQ(ids.server.accept(ids.accepted, parameters()), 0);
  ids.client.expect(CmEventType::kConnectResponse);
  ASSERT_EQ(ids.client.reject(ids.initiator, ""), 0);
  ids.server.expect(CmEventType::kRejected, kConsumerDefined);
}

TEST(CmConnection, FindsNoListener) {
  TwoIds ids;
  EXPECT_EQ(ids.server.destroy(ids.listener), 0U);
  ASSERT_EQ(ids.client.connect(ids.initiator, parameters()), 0);
  ids.client.expect(CmEventType::kRejected, kNoListener);
}

/// The process that accepts a connection need not be the listener's: several processes share a port.
TEST(CmConnection, IsMadeAgainIfAProcessEndsBeforeItHandsItOver) {
  UserCm cm{DeviceIdentity{.name = "soft0"}};
  const Channel client(cm);
  const Channel server(cm);
  const std::uint32_t before = server.listener();
  const CmAddress target = loopback_at(server.port_of(before));
  (void)server.destroy(before);
  UniqueFd ending = listen_at(listener_names(RDMA_PS_TCP, target).front());
  ASSERT_TRUE(ending);
  ASSERT_EQ(client.connect(client.initiator(target.port), parameters()), 0);
  ASSERT_TRUE(readable(ending.get(), 20'000));
  UniqueFd(accept4(ending.get(), nullptr, nullptr, SOCK_CLOEXEC)).reset();
  ending.reset();
  const std::uint32_t listener = server.create(100);
  ASSERT_EQ(server.bind(listener, ipv4(target.port)), 0);
  ASSERT_EQ(server.listen(listener), 0);
  server.expect(CmEventType::kConnectRequest);
}

TEST(CmConnection, FindsNoListenerOfItsKind) {
  TwoIds ids;
  const auto other = ids.client.initiator(ids.server.port_of(ids.listener), 201, RDMA_PS_UDP);
  ASSERT_EQ(ids.client.connect(other, parameters()), 0);
  ids.client.expect(CmEventType::kUnreachable, static_cast<int>(CmLookUpStatus::kUnsupported));
}

TEST(CmConnection, EndsWithThePeersFile) {
  TwoIds ids;
  ids.establish();
  ids.server.close();
  ids.client.expect(CmEventType::kDisconnected);
}

TEST(CmConnection, EndsWithThePeersProcess) {
  const rdmacomm::testing::ForkedChild server([](int line) {
    UserCm cm(DeviceIdentity{.name = "soft0"});
    const Channel channel(cm);
    const std::uint16_t port = channel.port_of(channel.listener());
    ASSERT_EQ(::send(line, &port, sizeof(port), 0), static_cast<ssize_t>(sizeof(port)));
    const auto id = channel.expect(CmEventType::kConnectRequest).id;
    ASSERT_EQ(channel.accept(id, parameters()), 0);
    channel.expect(CmEventType::kEstablished);
    _exit(0);  // without a word
  });
  std::uint16_t port = 0;
  ASSERT_EQ(::recv(server.line(), &port, sizeof(port), 0), static_cast<ssize_t>(sizeof(port)));
  UserCm cm(DeviceIdentity{.name = "soft0"});
  const Channel client(cm);
  const auto id = client.initiator(port);
  ASSERT_EQ(client.connect(id, parameters()), 0);
  client.expect(CmEventType::kConnectResponse);
  ASSERT_EQ(client.confirm(id), 0);
  client.expect(CmEventType::kDisconnected);
}

TEST(CmConnection, WaitsWhileTheBacklogIsFull) {
  UserCm cm(DeviceIdentity{.name = "soft0"});
  const Channel server(cm);
  const Channel client(cm);
  const std::uint32_t listener = server.listener(RDMA_PS_TCP, 1);
  const std::uint16_t port = server.port_of(listener);
  const auto first = client.initiator(port, 1);
  const auto second = client.initiator(port, 2);
  ASSERT_EQ(client.connect(first, parameters("1")), 0);
  ASSERT_EQ(client.connect(second, parameters("2")), 0);
  const auto one = server.expect(CmEventType::kConnectRequest);
  const auto other = server.expect(CmEventType::kConnectRequest);
  EXPECT_NE(one.param.conn.private_data[0], other.param.conn.private_data[0]);
  EXPECT_FALSE(server.has_event());
}

TEST(CmConnection, OfDatagramsGivesTheQueuePair) {
  TwoIds ids(RDMA_PS_UDP);
  const auto request = ids.request("who?");
  EXPECT_EQ(private_data(request.param.conn, 0), "");
  auto answer = parameters("me", 0x77);
  answer.qkey = 0x99;
  ASSERT_EQ(ids.server.accept(ids.accepted, answer), 0);
  const auto found = ids.client.expect(CmEventType::kEstablished);
  EXPECT_EQ(found.param.ud.qp_num, 0x77U);
  EXPECT_EQ(found.param.ud.qkey, 0x99U);
  EXPECT_EQ(std::memcmp(found.param.ud.private_data, "me", 2), 0);
  EXPECT_EQ(found.param.ud.ah_attr.is_global, 1);
  EXPECT_EQ(ids.client.disconnect(ids.initiator), EINVAL);
}

TEST(CmConnection, MovesWithItsListenerIfItsRequestIsUnread) {
  TwoIds ids;
  ASSERT_EQ(ids.client.connect(ids.initiator, parameters()), 0);
  ASSERT_TRUE(readable(ids.server.fd, 20'000));
  const Channel other(ids.at_server);
  rdma_ucm_migrate_id command{};
  command.id = ids.listener;
  command.fd = static_cast<std::uint32_t>(ids.server.fd);
  (void)other.ask<rdma_ucm_migrate_resp>(RDMA_USER_CM_CMD_MIGRATE_ID, command);
  const auto id = other.expect(CmEventType::kConnectRequest).id;
  EXPECT_EQ(ids.server.accept(id, parameters()), EINVAL);
  EXPECT_EQ(other.accept(id, parameters()), 0);
  ids.client.expect(CmEventType::kConnectResponse);
}

TEST(CmConnection, MovesToAnotherChannelWithItsEvents) {
  TwoIds ids;
  ids.request();
  const Channel other(ids.at_client);
  ASSERT_EQ(ids.server.accept(ids.accepted, parameters()), 0);
  ASSERT_TRUE(readable(ids.client.fd, 20'000));
  rdma_ucm_migrate_id command{};
  command.id = ids.initiator;
  command.fd = static_cast<std::uint32_t>(ids.client.fd);
  EXPECT_EQ(other.ask<rdma_ucm_migrate_resp>(RDMA_USER_CM_CMD_MIGRATE_ID, command).events_reported, 2U);
  other.expect(CmEventType::kConnectResponse);
  EXPECT_EQ(ids.client.confirm(ids.initiator), EINVAL) << "it is no identifier of this channel any more";
  EXPECT_EQ(other.confirm(ids.initiator), 0);
}

}  // namespace
}  // namespace rdmacomm::softdev::test
