// Between hosts, a message without a posted receive must not block the data after it, which contains the answers to the
// queue pair's own requests. The message is kept or dropped, and all requests after it are dropped; the peer sends them
// again. Also tests the sender's part of this.
#include <gtest/gtest.h>

#include <cstdint>

#include "softdev/tcp/manual_scene.h"
#include "softdev/tcp/tcp_raw_client.h"
#include "softdev/verbs/raw_verbs.h"

namespace rdmacomm::softdev::test {
namespace {

constexpr std::uint32_t kLongSend = 64 * 1024;

/// Two messages with receives, then one that waits for a receive, and another one after it.
struct Waiting : ManualScene {
  Waiting() {
    for (int i = 0; i < 4; ++i) send();
    const TcpAnswer answer = next_news();
    EXPECT_EQ(answer.kind, TcpAnswer::kNotReady);
    EXPECT_EQ(answer.done, 2U);
    EXPECT_EQ(answer.rnr_timer, qp.settings.min_rnr_timer);
    EXPECT_EQ(qp.next().wr_id, 1U);
    EXPECT_EQ(qp.next().wr_id, 2U);
  }
};

TEST(TcpReceiver, AnswersBehindAMessageWithoutReceiveAreProcessed) {
  Waiting scene;
  scene.post();
  (void)scene.next_request();
  scene.answer(1);
  EXPECT_EQ(scene.qp.next().opcode, IBV_WC_SEND);
}

TEST(TcpReceiver, AShortMessageIsKeptAndTheFollowingOnesAreSentAgain) {
  Waiting scene;
  ASSERT_EQ(scene.qp.post_recv(scene.memory.slice(0, 64), 3), 0);
  EXPECT_EQ(scene.qp.next().wr_id, 3U);
  const TcpAnswer answer = scene.next_news();
  EXPECT_EQ(answer.kind, TcpAnswer::kReady);
  EXPECT_EQ(answer.done, 3U);
  ASSERT_EQ(scene.qp.post_recv(scene.memory.slice(0, 64), 4), 0);
  scene.send();  // sent before kReady arrived
  scene.send(0, 1);
  EXPECT_EQ(scene.qp.next().wr_id, 4U);
  EXPECT_EQ(scene.next_answer().done, 4U);
}

TEST(TcpReceiver, ALongMessageIsSentAgain) {
  ManualScene scene;
  const Memory large(scene.node, kLongSend);
  scene.send();
  scene.send();
  scene.send(0, 0, kLongSend);
  EXPECT_EQ(scene.next_news().kind, TcpAnswer::kNotReady);
  ASSERT_EQ(scene.qp.post_recv(large.slice(0, kLongSend), 3), 0);
  for (const std::uint64_t id : {1U, 2U}) EXPECT_EQ(scene.qp.next().wr_id, id);
  const TcpAnswer answer = scene.next_news();
  EXPECT_EQ(answer.kind, TcpAnswer::kReady);
  EXPECT_EQ(answer.done, 2U);
  scene.send(0, 1, kLongSend);
  const ibv_wc wc = scene.qp.next();
  EXPECT_EQ(wc.wr_id, 3U);
  EXPECT_EQ(wc.byte_len, kLongSend);
  EXPECT_EQ(large.data[kLongSend - 1], std::byte{7});
}

TEST(TcpReceiver, SendingAgainUnaskedIsAProtocolError) {
  ManualScene scene;
  scene.send(0, 1);
  EXPECT_TRUE(is_closed(scene.connection));
}

/// Sends two requests. The target answers that the first one waits for a receive.
void send_two_without_receives(ManualScene& scene) {
  scene.post();
  scene.post();
  (void)scene.next_request();
  (void)scene.next_request();
  scene.answer(0, TcpAnswer::kNotReady);
}

TEST(TcpReceiver, MessagesThatTheTargetDropsAreSentAgain) {
  ManualScene scene;
  send_two_without_receives(scene);
  scene.send();  // when it arrives, kNotReady has arrived
  EXPECT_EQ(scene.qp.next().opcode, IBV_WC_RECV);
  scene.post();  // not sent before kReady
  scene.answer(0, TcpAnswer::kReady);
  EXPECT_EQ(scene.next_request().again, 1U);
  EXPECT_EQ(scene.next_request().again, 0U);
  EXPECT_EQ(scene.next_request().again, 0U);
  scene.answer(3);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(scene.qp.next().opcode, IBV_WC_SEND);
}

/// Requests that the target has carried out meanwhile are not sent again.
TEST(TcpReceiver, TheTargetNamesTheRequestToBeginWith) {
  ManualScene scene;
  send_two_without_receives(scene);
  scene.answer(1, TcpAnswer::kReady);
  EXPECT_EQ(scene.qp.next().opcode, IBV_WC_SEND);
  EXPECT_EQ(scene.next_request().again, 1U);
  scene.answer(2);
  EXPECT_EQ(scene.qp.next().opcode, IBV_WC_SEND);
}

TEST(TcpReceiver, GivingUpAReceiverThatIsNotReadyEndsTheConnection) {
  QpSettings impatient;
  impatient.rnr_retry = 1;
  ManualScene scene(impatient);
  scene.post();
  (void)scene.next_request();
  scene.answer(0, TcpAnswer::kNotReady);
  ibv_wc wc = scene.qp.next();
  while (wc.wr_id != 3) wc = scene.qp.next();  // its receives are flushed
  EXPECT_EQ(wc.status, IBV_WC_RNR_RETRY_EXC_ERR);
  EXPECT_TRUE(is_closed(scene.connection)) << "it must not be carried out later";
}

/// More data than the connection can hold, in both directions, and neither end has posted receives yet.
TEST(TcpReceiver, TwoSendersOfLongMessagesDoNotBlockEachOther) {
  constexpr std::size_t kMessage = 1U << 20;
  constexpr std::uint64_t kMessages = 16;
  const WireVariable variable("tcp");
  Pair pair;
  Memory from(pair.a_node, kMessage);
  Memory to(pair.b_node, kMessage);
  from.fill(1);
  for (std::uint64_t i = 0; i < kMessages; ++i) {
    ASSERT_EQ(pair.a.post(send_request(i), from.slice(0, kMessage)), 0);
    ASSERT_EQ(pair.b.post(send_request(i), to.slice(0, kMessage)), 0);
  }
  for (std::uint64_t i = 0; i < 1000; ++i) {
    ASSERT_TRUE(pair.a.poll().empty());
    ASSERT_TRUE(pair.b.poll().empty());
  }
  const Memory a_in(pair.a_node, kMessage);
  const Memory b_in(pair.b_node, kMessage);
  for (std::uint64_t i = 0; i < kMessages; ++i) {
    ASSERT_EQ(pair.a.post_recv(a_in.slice(0, kMessage), i), 0);
    ASSERT_EQ(pair.b.post_recv(b_in.slice(0, kMessage), i), 0);
  }
  for (std::uint64_t i = 0; i < 2 * kMessages; ++i) {
    ASSERT_EQ(pair.a.next().status, IBV_WC_SUCCESS);
    ASSERT_EQ(pair.b.next().status, IBV_WC_SUCCESS);
  }
  EXPECT_EQ(std::memcmp(from.data, b_in.data, kMessage), 0);
}

// ---- The end that connects

TEST(TcpConnecting, TheGreaterNumberDoesNotConnectToTheLesser) {
  ManualScene scene;
  const UniqueFd second = connect_raw(scene.qp.number());
  TcpGreeting greeting = connection_greeting(Service::kReliable, scene.peer.number, scene.qp.number());
  say(second, greeting);
  EXPECT_EQ(welcome_of(second), Welcome::kRefused);
  scene.send();
  EXPECT_EQ(scene.qp.next().wr_id, 1U);
}

TEST(TcpConnecting, TheGreaterNumberCallsTheLesser) {
  const WireVariable variable("tcp");
  Node node;
  const Memory memory(node);
  const ManualPeer peer(ManualPeer::Place::kFirst);
  Qp qp(node);
  qp.connect_to(peer.number);
  const UniqueFd call = peer.accept();
  const auto calls = hear<TcpGreeting>(call);
  EXPECT_EQ(calls.kind, GreetingKind::kCall);
  EXPECT_EQ(calls.initiator_qpn, qp.number());
  EXPECT_EQ(calls.target_qpn, peer.number);
  const UniqueFd connection = connect_raw(qp.number());
  TcpGreeting greeting = connection_greeting(Service::kReliable, peer.number, qp.number());
  greeting.token = 77;
  say(connection, greeting);
  const UniqueFd question = peer.accept();
  EXPECT_EQ(hear<TcpGreeting>(question).token, 77U);
  welcome(question);
  EXPECT_EQ(welcome_of(connection), Welcome::kYes);
  ASSERT_EQ(qp.post(send_request(1), memory.slice(0, 8)), 0);
  EXPECT_EQ(hear<TcpRequest>(connection).length, 8U) << "by the same connection";
}

}  // namespace
}  // namespace rdmacomm::softdev::test
