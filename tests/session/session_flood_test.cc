// Idle connections, during the handshake or after it, do not block clients of other addresses.
#include <gmock/gmock.h>

#include <future>
#include <list>
#include <vector>

#include "connector/handshake.h"
#include "session/session_test_tools.h"
#include "support/own_network.h"
#include "support/raw_socket.h"

namespace rdmacomm {
namespace {

using namespace rdmacomm::testing;  // NOLINT(google-build-using-namespace): the tools of this test

/// A server without handshake timeouts: only its limits end a handshake.
TestServer patient_server(SessionOptions options = local_options()) {
  options.tcp.handshake_timeout = std::chrono::hours(1);
  auto server = make_server(options);
  EXPECT_TRUE(server->start().ok());
  return server;
}

void flood(std::list<RawSocket>& sockets, std::uint16_t port, const std::string& source, int count) {
  const auto hello = *frame_message(MessageType::kHello, Hello::of_this_process().encode());
  for (int i = 0; i < count; ++i) {
    const RawSocket& socket = sockets.emplace_back(port, source.c_str());
    ASSERT_TRUE(socket.valid());
    // Sends nothing, the beginning of a message, or a whole HELLO and nothing after it. If the server has already
    // closed the connection, sending fails.
    if (i % 3 == 1) (void)socket.send("RDCM\x01");
    if (i % 3 == 2) (void)socket.send(hello);
  }
}

TEST(SessionFlood, AHostThatFillsItsPlacesDoesNotBlockOtherHosts) {
  const auto server = patient_server();
  std::list<RawSocket> idle;
  flood(idle, server->port(), "127.0.0.2", 250);
  const auto client = make_client(*server);
  const auto endpoint = client->connect();
  EXPECT_TRUE(endpoint) << endpoint.status().message();
}

TEST(SessionFlood, HostsThatFillAllPlacesLoseTheirLateOnes) {
  SessionOptions options = local_options();
  options.handshake_slots = 8;
  options.handshakes_per_source = 4;
  options.handshake_patience = std::chrono::milliseconds(1);
  const auto server = patient_server(options);
  std::list<RawSocket> idle;
  for (const char* source : {"127.0.0.2", "127.0.0.3", "127.0.0.4"}) flood(idle, server->port(), source, 80);
  const auto client = make_client(*server);
  const auto endpoint = client->connect();
  EXPECT_TRUE(endpoint) << endpoint.status().message();
  EXPECT_TRUE(server.hooks->record.wait_for("connect_failed timed out"));
}

TEST(SessionFlood, ADroppedClientGetsTheReason) {
  SessionOptions options = local_options();
  options.handshake_slots = 1;
  options.waiting_handshakes = 2;
  const auto server = patient_server(options);
  const RawSocket first(server->port(), "127.0.0.2");
  std::vector<RawSocket> others;
  std::vector<pollfd> waited;
  for (int i = 0; i < 4; ++i) waited.push_back({others.emplace_back(server->port(), "127.0.0.2").fd(), POLLIN, 0});
  int told = 0;
  // Two connections may wait.
  while (told < 2 && ::poll(waited.data(), waited.size(), 20'000) > 0) {
    for (std::size_t i = 0; i < waited.size(); ++i) {
      if (waited[i].revents == 0) continue;
      const auto bytes = others[i].read_all();
      const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      EXPECT_NE(text.find("waiting_handshakes"), std::string_view::npos);
      waited[i].fd = -1;
      ++told;
    }
  }
  EXPECT_EQ(told, 2);
}

TEST(SessionFlood, ClientsWithoutAPlaceRetry) {
  SessionOptions options = local_options();
  options.handshake_slots = 1;
  options.waiting_handshakes = 2;
  const auto server = make_server(options);
  ASSERT_TRUE(server->start().ok());
  options = local_options(server->port());
  options.tcp.connect_timeout = std::chrono::minutes(1);
  const auto client = TestClient(options);
  std::vector<std::future<Status>> connecting;
  for (int i = 0; i < 20; ++i) {
    connecting.push_back(std::async(std::launch::async, [&] { return client->connect().status(); }));
  }
  for (auto& each : connecting) {
    const Status connected = each.get();
    EXPECT_TRUE(connected.ok()) << connected.message();
  }
}

TEST(SessionFlood, IdleClientsLeaveEndpointsToOtherHosts) {
  const OwnNetwork network;
  if (!network.why_not().empty()) GTEST_SKIP() << network.why_not();
  network.ip("link set lo up");
  network.ip("address add 10.0.0.2/32 dev lo");  // source address of connections to it
  SessionOptions options = local_options();
  options.address.host = "0.0.0.0";
  options.max_endpoints = 3;
  options.max_endpoints_per_source = 2;
  const auto server = make_server(options);
  ASSERT_TRUE(server->start().ok());
  const auto client = make_client(*server);
  const auto first = client->connect();
  const auto second = client->connect();
  ASSERT_TRUE(first && second);
  const auto third = client->connect();
  EXPECT_EQ(third.code(), Errc::kPeerRefused);
  EXPECT_THAT(third.status().message(), ::testing::HasSubstr("max_endpoints_per_source"));
  const auto other = client->connect({"10.0.0.2", server->port()});
  EXPECT_TRUE(other) << other.status().message();
  // When an endpoint closes, the next client of its source gets its place.
  EXPECT_TRUE((*first).close().ok());
  ASSERT_TRUE(server.hooks->record.wait_for("disconnected ok"));
  const auto again = client->connect();
  EXPECT_TRUE(again) << again.status().message();
}

}  // namespace
}  // namespace rdmacomm
