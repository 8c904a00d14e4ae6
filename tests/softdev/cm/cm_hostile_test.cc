// Clients on the network that send wrong messages to the connection manager, or the right ones at the wrong time.
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <array>
#include <cstring>
#include <utility>
#include <vector>

#include "softdev/cm/cm_link.h"
#include "softdev/cm/cm_message.h"
#include "softdev/cm/cm_scene.h"
#include "softdev/cm/loopback_network.h"
#include "softdev/cm/port_claim.h"
#include "softdev/shared/unix_packet.h"
#include "softdev/tcp/tcp_raw_client.h"

namespace rdmacomm::softdev::test {
namespace {

constexpr ibv_gid kLoopback = {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1}};

/// A listener, and a client that is connected to its host by TCP.
struct CmClient : ::testing::Test {
  NetworkWithLoopback network;
  UserCm cm{DeviceIdentity{.name = "soft0"}};
  Channel server{cm};
  std::uint32_t listener = 0;
  UniqueFd socket;

  void SetUp() override {
    if (!network.why_not().empty()) GTEST_SKIP() << network.why_not();
    listener = server.listener();
    socket = connect();
  }
  static UniqueFd connect() {
    UniqueFd made(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const sockaddr_in address = ipv4(kCmPort);
    prepare(made);
    EXPECT_EQ(::connect(made.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    return made;
  }
  [[nodiscard]] CmMessage request() const {
    CmMessage message;
    message.kind = CmKind::kConnect;
    message.port_space = RDMA_PS_TCP;
    message.family = AF_INET;
    message.source = message.target = kLoopback;
    message.source_port = 5;
    message.target_port = server.port_of(listener);
    message.qpn = 7;
    return message;
  }
  /// Where processes of this host reach the listener.
  [[nodiscard]] CmAddress local_target() const { return loopback_at(server.port_of(listener)); }
  /// The server must close the connection, and the program must not notice anything.
  void expect_refusal(const CmMessage& message) {
    say(socket, message);
    EXPECT_TRUE(is_closed(socket));
    EXPECT_FALSE(server.has_event());
    socket = connect();
  }
};

TEST_F(CmClient, IsRefusedIfAFieldIsWrong) {
  const auto with = [this](auto change) {
    CmMessage message = request();
    change(message);
    expect_refusal(message);
  };
  with([](CmMessage& m) { m.magic ^= 1; });
  with([](CmMessage& m) { m.version = 2; });
  with([](CmMessage& m) { m.kind = CmKind{0}; });
  with([](CmMessage& m) { m.kind = CmKind{9}; });
  with([](CmMessage& m) { m.kind = CmKind::kAccept; });
  with([](CmMessage& m) { m.kind = CmKind::kDisconnect; });
  with([](CmMessage& m) { m.qpn = 1U << 24; });
  with([](CmMessage& m) { m.psn = 1U << 24; });
  with([](CmMessage& m) { m.retry_count = 8; });
  with([](CmMessage& m) { m.ack_timeout = 32; });
  with([](CmMessage& m) { m.family = AF_UNIX; });
  with([](CmMessage& m) { m.family = AF_INET6; });
  with([](CmMessage& m) { m.source.raw[15] = 2; });  // another address than the connection's
  with([](CmMessage& m) { m.target.raw[15] = 2; });
}

TEST_F(CmClient, ThatSendsHalfAMessageDelaysNobody) {
  const CmMessage whole = request();
  ASSERT_EQ(::send(socket.get(), &whole, sizeof(whole) / 2, MSG_NOSIGNAL), static_cast<ssize_t>(sizeof(whole) / 2));
  const UniqueFd other = connect();
  say(other, whole);
  server.expect(CmEventType::kConnectRequest);
  const auto* const rest = reinterpret_cast<const std::byte*>(&whole) + sizeof(whole) / 2;
  ASSERT_EQ(::send(socket.get(), rest, sizeof(whole) / 2, MSG_NOSIGNAL), static_cast<ssize_t>(sizeof(whole) / 2));
  server.expect(CmEventType::kConnectRequest);
}

TEST_F(CmClient, CannotTakeAllDescriptorsOfTheServer) {
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 200; ++i) silent.push_back(connect());
  const UniqueFd last = connect();
  say(last, request());
  server.expect(CmEventType::kConnectRequest);
}

/// Raises the number of open files to the limit.
struct AllFiles {
  rlimit before{};
  std::vector<UniqueFd> files;

  AllFiles() {
    EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
    const rlimit few{256, before.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
    for (;;) {
      UniqueFd file(open("/dev/null", O_RDONLY | O_CLOEXEC));
      if (!file) break;
      files.push_back(std::move(file));
    }
    EXPECT_EQ(errno, EMFILE);
  }
  AllFiles(const AllFiles&) = delete;
  AllFiles& operator=(const AllFiles&) = delete;
  ~AllFiles() { setrlimit(RLIMIT_NOFILE, &before); }
};

TEST_F(CmClient, WaitsUntilTheServerCanHaveMoreFiles) {
  say(socket, request());
  server.expect(CmEventType::kConnectRequest);
  UniqueFd remote(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_in address = ipv4(kCmPort);
  AllFiles all;
  ASSERT_EQ(::connect(remote.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  say(remote, request());
  EXPECT_FALSE(readable(server.fd, 30));
  all.files.clear();
  server.expect(CmEventType::kConnectRequest);
}

TEST_F(CmClient, IsServedWithTheLastFileOfTheServer) {
  UniqueFd remote(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_in address = ipv4(kCmPort);
  AllFiles all;
  all.files.pop_back();
  ASSERT_EQ(::connect(remote.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  say(remote, request());
  server.expect(CmEventType::kConnectRequest);
}

TEST_F(CmClient, OfAnotherHostCannotTakeThePlacesOfThisHost) {
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 200; ++i) silent.push_back(connect());
  EXPECT_TRUE(is_closed(socket)) << "it is the oldest one, and another one waits for its place";
  const UniqueFd local = connect_to(listener_names(RDMA_PS_TCP, local_target()).front());
  ASSERT_TRUE(local);
  say(local, request());
  server.expect(CmEventType::kConnectRequest);
}

TEST_F(CmClient, WithoutAListenerGetsAnAnswer) {
  CmMessage message = request();
  message.target_port = static_cast<std::uint16_t>(message.target_port ^ 1);
  say(socket, message);
  const auto answer = hear<CmMessage>(socket);
  EXPECT_EQ(answer.kind, CmKind::kReject);
  EXPECT_EQ(answer.status, static_cast<std::uint8_t>(CmReason::kNoListener));
}

/// A connected identifier, and messages that do not belong to its state.
TEST_F(CmClient, CannotRejectWithoutAReason) {
  say(socket, request());
  const auto id = server.expect(CmEventType::kConnectRequest).id;
  ASSERT_EQ(server.accept(id, parameters()), 0);
  EXPECT_EQ(hear<CmMessage>(socket).kind, CmKind::kAccept);
  CmMessage reject;
  reject.kind = CmKind::kReject;
  say(socket, reject);
  server.expect(CmEventType::kRejected, static_cast<int>(CmReason::kConsumerDefined));
}

TEST_F(CmClient, CannotRepeatItsRequest) {
  say(socket, request());
  const auto id = server.expect(CmEventType::kConnectRequest).id;
  ASSERT_EQ(server.accept(id, parameters()), 0);
  EXPECT_EQ(hear<CmMessage>(socket).kind, CmKind::kAccept);
  say(socket, request());
  server.expect(CmEventType::kRejected, static_cast<int>(CmReason::kConsumerDefined));
  EXPECT_TRUE(is_closed(socket));
}

/// A process of this host may name any target.
TEST_F(CmClient, OfThisHostThatNamesAnotherHostIsRejected) {
  CmMessage message = request();
  const UniqueFd local = connect_to(listener_names(RDMA_PS_TCP, local_target()).front());
  ASSERT_TRUE(local);
  message.target.raw[12] = 203;
  say(local, message);
  EXPECT_EQ(hear<CmMessage>(local).kind, CmKind::kReject);
  EXPECT_TRUE(is_closed(local));
  EXPECT_FALSE(server.has_event());
  say(socket, request());
  server.expect(CmEventType::kConnectRequest);  // the listener still has room for others
}

TEST_F(CmClient, AnsweringItselfHasNoEffect) {
  say(socket, request());
  const auto id = server.expect(CmEventType::kConnectRequest).id;
  CmMessage ready;
  ready.kind = CmKind::kReady;
  say(socket, ready);
  CmMessage accept;
  accept.kind = CmKind::kAccept;
  say(socket, accept);
  EXPECT_TRUE(is_closed(socket));
  EXPECT_EQ(server.accept(id, parameters()), EINVAL);
}

TEST_F(CmClient, CannotDisconnectBeforeItIsAccepted) {
  say(socket, request());
  const auto id = server.expect(CmEventType::kConnectRequest).id;
  CmMessage disconnect;
  disconnect.kind = CmKind::kDisconnect;
  say(socket, disconnect);
  EXPECT_TRUE(is_closed(socket)) << "without an answer";
  EXPECT_EQ(server.accept(id, parameters()), EINVAL);
}

TEST_F(CmClient, ThatRepeatsAMessageWithoutEffectIsClosed) {
  say(socket, request());
  server.expect(CmEventType::kConnectRequest);
  CmMessage ready;
  ready.kind = CmKind::kReady;
  for (int i = 0; i < 16; ++i) say(socket, ready);
  EXPECT_TRUE(is_closed(socket));
}

/// A listener's process that disconnects twice, while the initiator has not confirmed the connection.
TEST_F(CmClient, DisconnectIsAnsweredOnce) {
  CmAddress target = local_target();
  target.port ^= 1;
  const UniqueFd peers = listen_at(listener_names(RDMA_PS_TCP, target).front());
  ASSERT_TRUE(peers);
  const auto initiator = server.initiator(target.port);
  ASSERT_EQ(server.connect(initiator, parameters()), 0);
  ASSERT_TRUE(readable(peers.get(), 20'000));
  const UniqueFd peer(accept4(peers.get(), nullptr, nullptr, SOCK_CLOEXEC));
  EXPECT_EQ(hear<CmMessage>(peer).kind, CmKind::kConnect);
  CmMessage message;
  message.kind = CmKind::kAccept;
  say(peer, message);
  message.kind = CmKind::kDisconnect;
  say(peer, message);
  say(peer, message);
  server.expect(CmEventType::kConnectResponse);
  EXPECT_EQ(hear<CmMessage>(peer).kind, CmKind::kDisconnected);
  ASSERT_EQ(server.confirm(initiator), 0);
  EXPECT_EQ(hear<CmMessage>(peer).kind, CmKind::kReady) << "not another answer";
}

TEST(CmLinkTest, EndsIfThePeerDoesNotRead) {
  std::array<int, 2> ends{};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()), 0);
  CmLink link{UniqueFd(ends[0])};
  const UniqueFd peer(ends[1]);
  const CmMessage message;
  int sent = 0;
  while (!link.has_unsent()) {
    link.send(message);
    ++sent;
  }
  for (int i = 1; i < 8; ++i, ++sent) link.send(message);
  EXPECT_EQ(link.flush(), 0) << "a few may wait";
  std::vector<std::byte> buffer(sizeof(message));
  ASSERT_EQ(::recv(peer.get(), buffer.data(), buffer.size(), 0), static_cast<ssize_t>(buffer.size()));
  link.send(message);
  EXPECT_EQ(link.flush(), 0) << "there is room again";
  for (int i = 0; i < 8; ++i) link.send(message);
  EXPECT_EQ(link.flush(), ENOBUFS);
  EXPECT_FALSE(link.has_unsent());
}

// ---- The secret of the connection

/// The client names queue pair `peer`, whose port the test has.
TEST_F(CmClient, OnlyTheQueuePairWithItsSecretIsItsPeer) {
  const WireVariable variable("tcp");
  Node node;
  const ManualPeer peer{ManualPeer::Place::kFirst};
  Qp qp{node};
  CmMessage message = request();
  message.qpn = peer.number;
  message.secret = {1, 2, 3};
  say(socket, message);
  const auto id = server.expect(CmEventType::kConnectRequest).id;
  ASSERT_EQ(server.attributes(id, IBV_QPS_RTR).dest_qp_num, peer.number);
  ASSERT_EQ(server.accept(id, parameters("", qp.number())), 0);
  const TcpSecret told = hear<CmMessage>(socket).secret;
  EXPECT_NE(told, TcpSecret{});
  qp.connect_to(peer.number);

  const auto greet = [&](const TcpSecret& secret) {
    UniqueFd connection = connect_raw(qp.number());
    TcpGreeting greeting = connection_greeting(Service::kReliable, peer.number, qp.number());
    greeting.token = 77;
    greeting.secret = secret;
    say(connection, greeting);
    for (;;) {
      const UniqueFd question = peer.accept();
      if (hear<TcpGreeting>(question).kind != GreetingKind::kConfirm) continue;
      welcome(question);
      return hear<TcpWelcome>(connection);
    }
  };
  EXPECT_EQ(greet({9, 9, 9}).answer, Welcome::kRefused) << "although it is the first";
  const TcpWelcome welcomed = greet(message.secret);
  EXPECT_EQ(welcomed.answer, Welcome::kYes);
  EXPECT_EQ(welcomed.secret, told);
}

}  // namespace
}  // namespace rdmacomm::softdev::test
