// A process that takes a dead peer's port is not taken for the peer.
#include "softdev/tcp/tcp_pairing.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>

#include "softdev/tcp/manual_scene.h"
#include "softdev/tcp/tcp_raw_client.h"
#include "softdev/verbs/raw_verbs.h"

namespace rdmacomm::softdev::test {
namespace {

constexpr TcpSecret kPeers{1, 2, 3};
constexpr TcpSecret kAnothers{1, 2, 4};

TEST(TcpPairing, TheFirstSecretIsThePeers) {
  TcpPairing pairing;
  ASSERT_EQ(pairing.begin({}, 7), 0);
  EXPECT_TRUE(pairing.is_peers(kPeers));
  EXPECT_FALSE(pairing.is_peers(kAnothers));
  EXPECT_FALSE(pairing.is_peers({}));
  EXPECT_TRUE(pairing.is_peers(kPeers));
}

TEST(TcpPairing, AfterAResetAnotherSecretIsAccepted) {
  TcpPairing pairing;
  ASSERT_EQ(pairing.begin({}, 7), 0);
  EXPECT_TRUE(pairing.is_peers(kPeers));
  ASSERT_EQ(pairing.begin({}, 7), 0);
  EXPECT_TRUE(pairing.is_peers(kAnothers));
}

TEST(TcpPairing, EachPeerGetsItsOwnSecret) {
  TcpPairing pairing;
  ASSERT_EQ(pairing.begin({}, 7), 0);
  const TcpSecret first = pairing.own();
  EXPECT_NE(first, TcpSecret{});
  ASSERT_EQ(pairing.begin({}, 7), 0);
  EXPECT_EQ(pairing.own(), first) << "a queue pair that was RESET is connected with its peer again";
  ASSERT_EQ(pairing.begin({}, 8), 0);
  EXPECT_NE(pairing.own(), first);
}

TEST(TcpPairing, AnAnnouncedSecretStaysForTheNextLife) {
  TcpPairing pairing;
  ASSERT_EQ(pairing.begin({}, 7), 0);
  ASSERT_EQ(pairing.draw(), 0);
  const TcpSecret announced = pairing.own();
  ASSERT_EQ(pairing.begin({}, 8), 0);
  EXPECT_EQ(pairing.own(), announced);
  ASSERT_EQ(pairing.begin({}, 9), 0);
  EXPECT_NE(pairing.own(), announced) << "for one life only";
}

TEST(TcpPairing, ThePeersAnnouncedSecretMustBeTheFirst) {
  TcpPairing pairing;
  ASSERT_EQ(pairing.begin({}, 7), 0);
  pairing.expect(kPeers);
  EXPECT_FALSE(pairing.is_peers(kAnothers));
  EXPECT_TRUE(pairing.is_peers(kPeers));
}

/// A queue pair that waits for its peer, played by the test, to connect.
struct Called {
  WireVariable variable{"tcp"};
  Node node;
  Memory memory{node};
  ManualPeer peer{ManualPeer::Place::kFirst};
  Qp qp{node};
  UniqueFd call;

  Called() {
    qp.connect_to(peer.number);
    call = peer.accept();
  }
  /// Connects as the peer does, with this secret. Returns the connection on which the device asks for confirmation.
  UniqueFd greet(UniqueFd& connection, const TcpSecret& secret) {
    connection = connect_raw(qp.number());
    TcpGreeting greeting = connection_greeting(Service::kReliable, peer.number, qp.number());
    greeting.token = 77;
    greeting.secret = secret;
    say(connection, greeting);
    return next_question();
  }
  /// Connects like greet(), and confirms.
  TcpWelcome connect(UniqueFd& connection, const TcpSecret& secret) {
    const UniqueFd question = greet(connection, secret);
    EXPECT_EQ(welcome(question), 0);
    return hear<TcpWelcome>(connection);
  }

 private:
  /// Skips the calls that a queue pair makes while it waits for its peer.
  [[nodiscard]] UniqueFd next_question() const {
    for (;;) {
      UniqueFd socket = peer.accept();
      const auto greeting = hear<TcpGreeting>(socket);
      if (greeting.kind == GreetingKind::kCall) continue;
      EXPECT_EQ(greeting.kind, GreetingKind::kConfirm);
      EXPECT_EQ(greeting.secret, TcpSecret{}) << "whoever has the port now is not to learn it";
      return socket;
    }
  }
  static int welcome(const UniqueFd& socket) {
    TcpWelcome yes;
    yes.answer = Welcome::kYes;
    return send(socket.get(), &yes, sizeof(yes), MSG_NOSIGNAL) == sizeof(yes) ? 0 : errno;
  }
};

TEST(TcpPairing, AnotherProcessAtThePeersPortIsRefused) {
  Called scene;
  UniqueFd connection;
  const TcpWelcome first = scene.connect(connection, kPeers);
  EXPECT_EQ(first.answer, Welcome::kYes);
  EXPECT_NE(first.secret, TcpSecret{});
  UniqueFd other;
  const TcpWelcome refused = scene.connect(other, kAnothers);
  EXPECT_EQ(refused.answer, Welcome::kRefused);
  EXPECT_EQ(refused.secret, TcpSecret{});
  UniqueFd again;
  const TcpWelcome second = scene.connect(again, kPeers);
  EXPECT_EQ(second.answer, Welcome::kYes);
  EXPECT_EQ(second.secret, first.secret);
}

TEST(TcpPairing, AnotherProcessAtTheTargetsPortGetsNoRequests) {
  ManualScene scene;  // the test's secret is zero
  scene.connection.reset();
  const UniqueFd again = scene.peer.accept();
  const auto greeting = hear<TcpGreeting>(again);
  EXPECT_EQ(greeting.secret, scene.greeting.secret) << "by which the target knows it again";
  TcpWelcome yes;
  yes.answer = Welcome::kYes;
  yes.secret = kAnothers;
  say(again, yes);
  scene.post();
  EXPECT_TRUE(is_closed(again));
  ibv_wc wc = scene.qp.next();
  while (wc.wr_id != 3) wc = scene.qp.next();  // its receives are flushed
  EXPECT_EQ(wc.status, IBV_WC_RETRY_EXC_ERR);
}

TEST(TcpPairing, TheTargetItselfGetsRequestsAgain) {
  ManualScene scene;
  scene.connection.reset();
  scene.connection = scene.peer.accept();
  (void)hear<TcpGreeting>(scene.connection);
  welcome(scene.connection);
  scene.post();
  EXPECT_EQ(scene.next_request().opcode, IBV_WR_SEND);
}

/// The peer's previous connection ends with the RESET, and data sent on it is lost.
TEST(TcpPairing, AGreetingFromBeforeAResetIsRefused) {
  Called scene;
  UniqueFd before;
  const UniqueFd question = scene.greet(before, kPeers);
  ASSERT_EQ(scene.qp.to_state(IBV_QPS_RESET), 0);
  scene.qp.connect_to(scene.peer.number);
  EXPECT_EQ(hear<TcpWelcome>(before).answer, Welcome::kNotYet);
  EXPECT_TRUE(is_closed(before));
  EXPECT_TRUE(is_closed(question)) << "nobody waits for the answer";
  UniqueFd next;
  EXPECT_EQ(scene.connect(next, kPeers).answer, Welcome::kYes);
}

/// A process of an older version gets a refusal at once, in the twelve bytes that it reads.
TEST(TcpPairing, AnOlderVersionIsRefused) {
  Called scene;
  const UniqueFd older = connect_raw(scene.qp.number());
  TcpGreeting greeting;
  greeting.version = kTcpVersion - 1;
  ASSERT_EQ(send(older.get(), &greeting, 32, MSG_NOSIGNAL), 32);
  EXPECT_EQ(welcome_of(older), Welcome::kRefused);
}

TEST(TcpPairing, ATargetOfAnOlderVersionIsNotRetried) {
  const WireVariable variable("tcp");
  Node node;
  const Memory memory(node);
  const ManualPeer peer;
  Qp qp(node, {.timeout = 1, .retry_count = 0});
  qp.connect_to(peer.number);
  const UniqueFd connection = peer.accept();
  TcpWelcome refused;
  refused.version = kTcpVersion - 1;
  refused.answer = Welcome::kRefused;
  ASSERT_EQ(send(connection.get(), &refused, 12, MSG_NOSIGNAL), 12);
  EXPECT_EQ(hear<TcpGreeting>(connection).kind, GreetingKind::kConnection);
  EXPECT_TRUE(is_closed(connection));
  ASSERT_EQ(qp.post(send_request(1), memory.slice(0, 8)), 0);
  EXPECT_EQ(qp.next().status, IBV_WC_RETRY_EXC_ERR);
}

}  // namespace
}  // namespace rdmacomm::softdev::test
