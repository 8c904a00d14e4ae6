// A client that is not a peer occupies one slot until its deadline and affects no other client. The death of a peer is
// noticed.
#include <gmock/gmock.h>
#include <sys/wait.h>

#include <csignal>
#include <cstdlib>
#include <future>

#include "base/wire.h"
#include "connector/handshake.h"
#include "connector/tcp_listen_socket.h"
#include "session/session_test_tools.h"
#include "support/raw_socket.h"
#include "support/this_program.h"

namespace rdmacomm {
namespace {

using namespace rdmacomm::testing;  // NOLINT(google-build-using-namespace): the tools of this test

TestServer impatient_server(int slots) {
  SessionOptions options = local_options();
  options.handshake_slots = slots;
  options.tcp.handshake_timeout = std::chrono::seconds(1);  // also enough for a real client
  auto server = make_server(options);
  EXPECT_TRUE(server->start().ok());
  return server;
}

TEST(SessionUnknownClient, GarbageHalfMessagesAndSilenceAreDistinguished) {
  const auto server = impatient_server(8);
  const RawSocket garbage(server->port());
  ASSERT_TRUE(garbage.send("GET / HTTP/1.1\r\n\r\n"));
  EXPECT_TRUE(server.hooks->record.wait_for("connect_failed bad message"));
  const RawSocket half(server->port());
  ASSERT_TRUE(half.send("RDCM\x01"));
  EXPECT_TRUE(server.hooks->record.wait_for("connect_failed timed out", 1));
  const RawSocket silent(server->port());
  EXPECT_TRUE(server.hooks->record.wait_for("connect_failed timed out", 2));
  RawSocket leaves(server->port());
  leaves.close();
  EXPECT_TRUE(server.hooks->record.wait_for("connect_failed peer lost"));
  EXPECT_EQ(server.hooks->record.count("config"), 0);
  const auto client = make_client(*server);
  EXPECT_TRUE(client->connect());
}

TEST(SessionUnknownClient, ASilentOneDoesNotDelayOthers) {
  const auto server = make_server();  // its handshake_timeout is much longer than this test
  ASSERT_TRUE(server->start().ok());
  const RawSocket silent(server->port());
  const RawSocket half(server->port());
  ASSERT_TRUE(half.send("RDCM\x01"));
  const auto client = make_client(*server);
  EXPECT_TRUE(client->connect());
  EXPECT_TRUE(server.hooks->record.wait_for("established"));
  EXPECT_EQ(server.hooks->record.lines().size(),
            4U);  // only the real client: init, config, post_connecting, established
}

TEST(SessionUnknownClient, WhenAllSlotsAreTakenClientsWaitTheirTurn) {
  const auto server = impatient_server(2);
  const RawSocket one(server->port());
  const RawSocket two(server->port());
  const RawSocket three(server->port());
  const auto client = make_client(*server);
  const auto endpoint = client->connect();
  EXPECT_TRUE(endpoint) << endpoint.status().message();
  EXPECT_GE(server.hooks->record.count("connect_failed timed out"), 2);
}

TEST(SessionUnknownClient, StopDoesNotWaitForThem) {
  SessionOptions options = local_options();
  options.tcp.handshake_timeout = std::chrono::hours(1);
  const auto server = make_server(options);
  ASSERT_TRUE(server->start().ok());
  const RawSocket silent(server->port());
  const auto client = make_client(*server);
  ASSERT_TRUE(client->connect());  // accepted after the unknown client, so that one has its slot
  server->stop();
  EXPECT_EQ(server.hooks->record.count("connect_failed stopped"), 0);
}

TEST(SessionUnknownClient, StopDoesNotWaitForThemAtAnyMoment) {
  SessionOptions options = local_options();
  options.tcp.handshake_timeout = std::chrono::hours(1);
  for (int round = 0; round < 50; ++round) {
    const auto server = make_server(options);
    ASSERT_TRUE(server->start().ok());
    const RawSocket silent(server->port());
    const RawSocket another(server->port());
    server->stop();  // they are in the handshake, waiting for it, or not accepted yet
  }
}

TEST(SessionUnknownClient, AnotherVersionIsRefusedWithTheReason) {
  const auto server = impatient_server(8);
  const RawSocket unknown(server->port());
  auto hello = *frame_message(MessageType::kHello, Hello::of_this_process().encode());
  hello[4] = std::byte{99};
  ASSERT_TRUE(unknown.send(hello));
  EXPECT_TRUE(server.hooks->record.wait_for("connect_failed version mismatch"));
  EXPECT_THAT(server.hooks->reasons.lines().front(), ::testing::HasSubstr("version 99"));
}

TEST(SessionUnknownClient, ASilentClientGetsNoInformation) {
  const auto server = impatient_server(8);
  const RawSocket silent(server->port());
  const auto bytes = silent.read_all();  // returns at the deadline
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  ASSERT_GE(bytes.size(), kMessageHeaderBytes);
  const auto first = MessageHeader::decode(std::span(bytes).first<kMessageHeaderBytes>());
  ASSERT_TRUE(first) << first.status().message();
  EXPECT_EQ(first->type, MessageType::kReject) << "no HELLO, which has this host's name and this process";
  EXPECT_EQ(text.find(Hello::of_this_process().node), std::string_view::npos);
}

TEST(SessionUnknownClient, MessagesBeforeTheBarrierAreKeptForTheApplication) {
  const auto server = make_server();
  ASSERT_TRUE(server->start().ok());
  const auto client = make_client(*server);
  const std::vector<std::byte> early(Connector::kMaxInboxBytesInHandshake - 1);
  client.hooks->connecting = [&](const EndPoint& endpoint) { return endpoint.send_message(early, soon()); };
  const auto endpoint = client->connect();
  ASSERT_TRUE(endpoint) << endpoint.status().message();
  const auto at_server = server->accept(soon());
  ASSERT_TRUE(at_server);
  const auto received = (*at_server).receive_message(soon());
  ASSERT_TRUE(received) << received.status().message();
  EXPECT_EQ(received->size(), early.size());
}

TEST(SessionUnknownClient, AnInvalidOfferIsRefusedWithTheReason) {
  const auto server = impatient_server(8);
  const RawSocket unknown(server->port());
  ASSERT_TRUE(unknown.send(*frame_message(MessageType::kHello, Hello::of_this_process().encode())));
  ASSERT_TRUE(unknown.send(*frame_message(MessageType::kOffer, std::as_bytes(std::span("nonsense")))));
  EXPECT_TRUE(server.hooks->record.wait_for("connect_failed bad message"));
  EXPECT_EQ(server.hooks->record.count("config"), 0);
}

TEST(SessionUnknownClient, AServerOfAnotherVersionIsNamedByTheClient) {
  auto listener = TcpListenSocket::listen({"127.0.0.1", 0});
  ASSERT_TRUE(listener);
  auto other = std::async(std::launch::async, [&] {
    pollfd waited{(*listener)->fd(), POLLIN, 0};
    ::poll(&waited, 1, 20'000);
    auto accepted = (*listener)->accept();
    auto hello = *frame_message(MessageType::kHello, Hello::of_this_process().encode());
    hello[4] = std::byte{7};
    ::send((*accepted)->watched().fd, hello.data(), hello.size(), MSG_NOSIGNAL);
    return std::move(*accepted);
  });
  const auto client = TestClient(local_options((*listener)->port()));
  const auto endpoint = client->connect();
  EXPECT_EQ(endpoint.code(), Errc::kVersionMismatch);
  EXPECT_THAT(endpoint.error().context, ::testing::HasSubstr("version 7"));
  EXPECT_NE(other.get(), nullptr);
}

/// Another process of this test program, which runs the disabled test below.
class PeerProcess {
 public:
  explicit PeerProcess(std::uint16_t port) {
    const std::string text = std::to_string(port);
    pid_ = ::fork();
    if (pid_ != 0) return;
    ::setenv("RDMACOMM_TEST_PORT", text.c_str(), 1);
    testing::become_disabled_test("*.DISABLED_ConnectsAndWaits");
  }
  PeerProcess(const PeerProcess&) = delete;
  PeerProcess& operator=(const PeerProcess&) = delete;
  ~PeerProcess() { kill(); }
  void freeze() const { ::kill(pid_, SIGSTOP); }
  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

 private:
  pid_t pid_ = -1;
};

TEST(PeerProcessBody, DISABLED_ConnectsAndWaits) {
  const char* port = std::getenv("RDMACOMM_TEST_PORT");
  ASSERT_NE(port, nullptr);
  ClientSession client(local_options(static_cast<std::uint16_t>(std::atoi(port))));
  const auto endpoint = client.connect();
  ASSERT_TRUE(endpoint) << endpoint.status().message();
  // Runs until it is killed, or the test that started it ends.
  EXPECT_EQ((*endpoint).next(Deadline::never()).code(), Errc::kPeerClosed);
}

TEST(SessionPeerDeath, AKilledClientEndsTheServersWaitWithItsName) {
  const auto server = make_server();
  ASSERT_TRUE(server->start().ok());
  PeerProcess peer(server->port());
  const auto endpoint = server->accept(soon());
  ASSERT_TRUE(endpoint) << endpoint.status().message();
  auto waiter = std::async(std::launch::async, [&] { return (*endpoint).next(soon()).status(); });
  peer.kill();
  const Status waited = waiter.get();
  EXPECT_EQ(waited.code(), Errc::kPeerLost);
  EXPECT_THAT(waited.message(), ::testing::HasSubstr("pid "));
  EXPECT_THAT(waited.message(), ::testing::HasSubstr("data QPN"));
  EXPECT_TRUE(server.hooks->record.wait_for("disconnected peer lost"));
  EXPECT_TRUE((*endpoint).close().ok());
}

TEST(SessionPeerDeath, AStoppedClientIsLostAfterTheGivenTime) {
  SessionOptions options = local_options(0);
  options.silent_peer_after = std::chrono::seconds(3);
  const auto server = TestServer(options);
  ASSERT_TRUE(server->start().ok());
  PeerProcess peer(server->port());
  const auto endpoint = server->accept(soon());
  ASSERT_TRUE(endpoint) << endpoint.status().message();
  peer.freeze();
  const Status waited = (*endpoint).next(soon()).status();
  EXPECT_EQ(waited.code(), Errc::kPeerLost);
  EXPECT_THAT(waited.message(), ::testing::HasSubstr("pid "));
  EXPECT_THAT(waited.message(), ::testing::HasSubstr("has sent nothing for"));
  EXPECT_TRUE(server.hooks->record.wait_for("disconnected peer lost"));
}

TEST(SessionPeerDeath, AClientInAnotherProcessSeesTheServersStop) {
  const auto server = make_server();
  ASSERT_TRUE(server->start().ok());
  PeerProcess peer(server->port());
  ASSERT_TRUE(server->accept(soon()));
  server->stop();
}

}  // namespace
}  // namespace rdmacomm
