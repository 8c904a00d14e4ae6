// Server and client sessions of one process, over soft0.
#include <gmock/gmock.h>
#include <poll.h>

#include <array>
#include <cstring>
#include <future>
#include <thread>

#include "connector/tcp_listen_socket.h"
#include "session/session_test_tools.h"

namespace rdmacomm {
namespace {

using namespace rdmacomm::testing;  // NOLINT(google-build-using-namespace): the tools of this test
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// A running server, and a client that is not connected yet.
struct SessionPair {
  SessionPair() {
    const Status started = server->start();
    EXPECT_TRUE(started.ok()) << started.message();
    client = make_client(*server);
  }
  EndPoint connect() {
    auto endpoint = client->connect();
    EXPECT_TRUE(endpoint.has_value()) << endpoint.status().message();
    return endpoint ? *endpoint : EndPoint();
  }
  EndPoint accept() {
    auto endpoint = server->accept(soon());
    EXPECT_TRUE(endpoint.has_value()) << endpoint.status().message();
    return endpoint ? *endpoint : EndPoint();
  }
  TestServer server = make_server();
  TestClient client;
};

TEST(Session, HooksAreCalledInOrder) {
  SessionPair pair;
  const auto at_client = pair.connect();
  const auto at_server = pair.accept();
  ASSERT_TRUE(at_client && at_server);
  EXPECT_TRUE(at_client.alive());
  EXPECT_TRUE(at_client.close().ok());
  ASSERT_TRUE(pair.server.hooks->record.wait_for("disconnected ok"));
  ASSERT_TRUE(pair.client.hooks->record.wait_for("disconnected ok"));
  EXPECT_THAT(pair.server.hooks->record.lines(),
              ElementsAre("init", "config", "post_connecting", "established", "disconnected ok"));
  EXPECT_THAT(pair.client.hooks->record.lines(),
              ElementsAre("init", "config", "post_connecting", "established", "disconnected ok"));
  EXPECT_THAT(pair.server->endpoints(), IsEmpty());
}

TEST(Session, TheServerSeesTheClientsDescription) {
  SessionPair pair;
  pair.client.hooks->configure = [](HcaConfig& hca, const PeerInfo& peer) {
    EXPECT_THAT(peer.private_data, IsEmpty());
    hca.private_data = {std::byte{42}};
    return Status();
  };
  pair.server.hooks->configure = [](HcaConfig& hca, const PeerInfo& peer) {
    EXPECT_EQ(peer.pid, static_cast<std::uint32_t>(getpid()));
    EXPECT_EQ(peer.private_data, std::vector<std::byte>{std::byte{42}});
    hca.private_data = {std::byte{43}};
    return Status();
  };
  const auto endpoint = pair.connect();
  ASSERT_TRUE(endpoint);
  EXPECT_EQ(endpoint.peer_private_data()[0], std::byte{43});
}

TEST(Session, ReceivesPostedWhileConnectingTakeTheFirstSend) {
  SessionPair pair;
  RDMABuffer to;
  pair.server.hooks->connecting = [&](const EndPoint& endpoint) -> Status {
    to = make_buffer(endpoint.device());
    return endpoint.channel().post_recv(to.at(0), {.id = 1});
  };
  const auto at_client = pair.connect();
  ASSERT_TRUE(at_client);
  const auto from = make_buffer(at_client.device());
  std::memcpy(from.data(), "hello", 5);
  ASSERT_TRUE(at_client.channel().post_send(from.at(0).first(5), {.id = 2}));
  EXPECT_EQ(wait_one(at_client).id, 2U);
  const auto at_server = pair.accept();
  const Completion received = wait_one(at_server);
  EXPECT_EQ(received.id, 1U);
  EXPECT_EQ(received.bytes, 5U);
  EXPECT_EQ(std::memcmp(to.data(), "hello", 5), 0);
  EXPECT_TRUE(at_server.close().ok());
}

TEST(Session, LaterJoinersAreServedWhileOthersAreConnected) {
  SessionPair pair;
  std::vector<EndPoint> at_client;
  for (int i = 0; i < 5; ++i) {
    at_client.push_back(pair.connect());
    ASSERT_TRUE(pair.accept());
  }
  EXPECT_EQ(pair.server->endpoints().size(), 5U);
  EXPECT_EQ(pair.client->endpoints().size(), 5U);
  EXPECT_TRUE(at_client[2].close().ok());
  ASSERT_TRUE(pair.server.hooks->record.wait_for("disconnected ok"));
  EXPECT_EQ(pair.server->endpoints().size(), 4U);
  ASSERT_TRUE(pair.connect());
}

TEST(Session, SeveralClientsConnectAtOnce) {
  SessionPair pair;
  std::vector<std::future<bool>> clients;
  for (int i = 0; i < 8; ++i) {
    clients.push_back(std::async(std::launch::async, [&] { return pair.client->connect().has_value(); }));
  }
  for (auto& client : clients) EXPECT_TRUE(client.get());
  for (int i = 0; i < 8; ++i) ASSERT_TRUE(pair.accept());
}

TEST(Session, WaitForEndpointEndsAtItsDeadlineAndByStop) {
  SessionPair pair;
  EXPECT_EQ(pair.server->accept(tiny()).code(), Errc::kTimeout);
  auto waiter = std::async(std::launch::async, [&] { return pair.server->accept(Deadline::never()).code(); });
  pair.server->stop();
  EXPECT_EQ(waiter.get(), Errc::kStopped);
}

TEST(Session, WaitingAtASessionThatWasNotStartedFails) {
  const auto server = make_server();
  EXPECT_EQ(server->accept(Deadline::never()).code(), Errc::kWrongState);
  SessionPair pair;
  const auto second = make_server(local_options(pair.server->port()));
  EXPECT_FALSE(second->start());
  EXPECT_EQ(second->accept(Deadline::never()).code(), Errc::kWrongState);
}

TEST(Session, HooksThatWouldNeverBeCalledAreRefused) {
  const auto server = make_server();
  ASSERT_TRUE(server->start());
  int calls = 0;
  const SessionFunctions functions{.on_completion = [&](const EndPoint&, const Completion&) { ++calls; }};
  const ClientSession client(local_options(server->port()), functions);
  const auto refused = client.connect();
  EXPECT_EQ(refused.code(), Errc::kInvalidArgument);
  EXPECT_THAT(refused.message(), HasSubstr("on_completion is set"));
  EXPECT_EQ(calls, 0);
}

// Refusals ------------------------------------------------------------------------------------------------------------

TEST(SessionRefusal, OtherChannelNames) {
  SessionPair pair;
  pair.client.hooks->configure = [](HcaConfig& hca, const PeerInfo&) {
    hca.channels = {{.name = "bulk"}};
    return Status();
  };
  const auto refused = pair.client->connect();
  EXPECT_EQ(refused.code(), Errc::kPeerRefused);
  EXPECT_THAT(refused.error().context, HasSubstr("control, data"));
  EXPECT_THAT(refused.error().context, HasSubstr("bulk"));
  ASSERT_TRUE(pair.server.hooks->record.wait_for("connect_failed incompatible peer"));
  pair.client.hooks->configure = nullptr;
  EXPECT_TRUE(pair.connect());
}

TEST(SessionRefusal, ByTheServersHookReachesTheClientWithItsText) {
  SessionPair pair;
  pair.server.hooks->configure = [](HcaConfig&, const PeerInfo&) -> Status {
    return make_error(Errc::kInvalidArgument, "only on Sundays");
  };
  const auto refused = pair.client->connect();
  EXPECT_EQ(refused.code(), Errc::kPeerRefused);
  EXPECT_THAT(refused.error().context, HasSubstr("only on Sundays"));
  EXPECT_THAT(refused.error().context, HasSubstr("pid " + std::to_string(getpid())));
}

TEST(SessionRefusal, ByTheClientsPostConnectingReachesTheServerWithItsText) {
  SessionPair pair;
  pair.client.hooks->connecting = [](const EndPoint&) -> Status {
    return make_error(Errc::kInvalidArgument, "no memory here");
  };
  EXPECT_EQ(pair.client->connect().code(), Errc::kInvalidArgument);
  ASSERT_TRUE(pair.server.hooks->record.wait_for("connect_failed refused by the peer"));
  EXPECT_THAT(pair.server.hooks->reasons.lines().front(), HasSubstr("no memory here"));
}

TEST(SessionRefusal, BeyondMaxEndpoints) {
  SessionOptions options = local_options();
  options.max_endpoints = 1;
  const auto server = make_server(options);
  ASSERT_TRUE(server->start().ok());
  const auto client = make_client(*server);
  const auto first = client->connect();
  ASSERT_TRUE(first);
  const auto second = client->connect();
  EXPECT_EQ(second.code(), Errc::kPeerRefused);
  EXPECT_THAT(second.error().context, HasSubstr("max_endpoints"));
  EXPECT_TRUE((*first).close().ok());
  ASSERT_TRUE(server.hooks->record.wait_for("disconnected ok"));
  EXPECT_TRUE(client->connect());
}

TEST(SessionRefusal, AClientWaitsForAPlaceThatAHandshakeMayFree) {
  for (int SessionOptions::*const bound : {&SessionOptions::max_endpoints, &SessionOptions::max_endpoints_per_source}) {
    SessionOptions options = local_options();
    options.*bound = 1;
    const auto server = make_server(options);
    std::promise<void> arrived;
    std::promise<void> refuse;
    server.hooks->configure = [&, first = true](HcaConfig&, const PeerInfo&) mutable -> Status {
      if (!std::exchange(first, false)) return {};
      arrived.set_value();
      refuse.get_future().wait();
      return make_error(Errc::kPeerRefused, "no memory here");
    };
    ASSERT_TRUE(server->start().ok());
    options = local_options(server->port());
    options.tcp.connect_timeout = std::chrono::minutes(1);
    const auto client = TestClient(options);
    auto comes_to_nothing = std::async(std::launch::async, [&] { return client->connect().status(); });
    arrived.get_future().wait();
    auto waits = std::async(std::launch::async, [&] { return client->connect().status(); });
    EXPECT_TRUE(server.hooks->record.wait_for("connect_failed server busy"));
    refuse.set_value();
    EXPECT_EQ(comes_to_nothing.get().code(), Errc::kPeerRefused);
    const Status connected = waits.get();
    EXPECT_TRUE(connected.ok()) << connected.message();
  }
}

TEST(SessionRefusal, ClientsOfAServerThatIsShortOfDescriptorsTryAgain) {
  const auto short_of_descriptors = [](HcaConfig&, const PeerInfo&) {
    return Status(make_error(make_error_code(std::errc::too_many_files_open), "cannot make a completion channel"));
  };
  const auto server = make_server();
  server.hooks->configure = [&, first = true](HcaConfig& hca, const PeerInfo& peer) mutable {
    return std::exchange(first, false) ? short_of_descriptors(hca, peer) : Status();
  };
  ASSERT_TRUE(server->start().ok());
  const auto client = make_client(*server);
  const auto connected = client->connect();
  EXPECT_TRUE(connected) << connected.status().message();
  EXPECT_EQ(server.hooks->record.count("connect_failed Too many open files"), 1);
  // A client that is short of descriptors says so, and does not report its server as busy.
  client.hooks->configure = short_of_descriptors;
  EXPECT_EQ(client->connect().code(), std::errc::too_many_files_open);
  EXPECT_TRUE(server.hooks->record.wait_for("connect_failed refused by the peer"));
}

TEST(SessionRefusal, InvalidLocalConfigurations) {
  SessionPair pair;
  pair.client.hooks->configure = [](HcaConfig& hca, const PeerInfo&) {
    hca.channel("data").adapter.send_depth = 1 << 30;
    return Status();
  };
  const auto endpoint = pair.client->connect();
  EXPECT_EQ(endpoint.code(), Errc::kBeyondDeviceLimit);
  EXPECT_THAT(endpoint.error().context, HasSubstr("channel 'data'"));
}

// Starting ------------------------------------------------------------------------------------------------------------

TEST(SessionStart, BadOptionsNameTheField) {
  SessionOptions options = local_options();
  options.handshake_slots = 0;
  EXPECT_THAT(make_server(options)->start().message(), HasSubstr("handshake_slots is 0"));
  options = local_options();
  options.max_endpoints = -3;
  EXPECT_THAT(make_server(options)->start().message(), HasSubstr("max_endpoints is -3"));
}

TEST(SessionStart, AnInvalidTimeIsReportedWithTheValueForNever) {
  EXPECT_EQ((SessionOptions{.silent_peer_after = std::chrono::milliseconds(5)}.validate().error().context),
            "silent_peer_after is 5 ms; it must be 3000..3600000 ms, or 0 to wait for ever");
}

TEST(SessionStart, UnknownDevice) {
  SessionOptions options = local_options();
  options.device.name = "soft7";
  const auto server = make_server(options);
  EXPECT_EQ(server->start().code(), Errc::kNoDevice);
  EXPECT_EQ(server.hooks->record.count("init"), 0);
}

TEST(SessionStart, PortInUseAndTryingAgain) {
  SessionPair pair;
  const auto second = make_server(local_options(pair.server->port()));
  EXPECT_EQ(second->start().code(), std::errc::address_in_use);
  pair.server->stop();
  EXPECT_TRUE(second->start().ok());
  EXPECT_EQ(second.hooks->record.count("init"), 1);
}

TEST(SessionStart, TwiceIsRefusedAndSoIsAfterStop) {
  SessionPair pair;
  EXPECT_EQ(pair.server->start().code(), Errc::kWrongState);
  const std::uint16_t port = pair.server->port();
  pair.server->stop();
  EXPECT_TRUE(pair.server->stopped());
  EXPECT_EQ(pair.server->start().code(), Errc::kStopped);
  SessionOptions options = local_options(port);
  options.tcp.connect_timeout = std::chrono::milliseconds(1);
  EXPECT_EQ(TestClient(options)->connect().code(), std::errc::connection_refused);
}

TEST(SessionStart, AnErrorOfInitSessionEndsIt) {
  SessionPair pair;
  pair.client.hooks->init_result = make_error(Errc::kNotSupported, "not today");
  EXPECT_EQ(pair.client->connect().code(), Errc::kNotSupported);
  pair.client.hooks->init_result = {};
  EXPECT_TRUE(pair.connect());
  EXPECT_EQ(pair.client.hooks->record.count("init"), 2);
}

TEST(SessionStart, SessionsMayShareADevice) {
  auto opened = RDMADevice::open({.name = "soft0"});
  ASSERT_TRUE(opened);
  const RDMADevice device = std::move(*opened);
  SessionOptions options = local_options();
  options.shared_device = device;
  const auto server = make_server(options);
  ASSERT_TRUE(server->start().ok());
  options.address.port = server->port();
  const auto client = TestClient(options);
  const auto endpoint = client->connect();
  ASSERT_TRUE(endpoint) << endpoint.status().message();
  EXPECT_EQ(endpoint->device(), device);
  EXPECT_EQ(server->device(), client->device());
}

// Stopping ------------------------------------------------------------------------------------------------------------

TEST(SessionStop, BeforeStartAndTwice) {
  const auto server = make_server();
  server->stop();
  server->stop();
  EXPECT_EQ(server->start().code(), Errc::kStopped);
  ServerSession plain(local_options());
  EXPECT_TRUE(plain.start().ok());
}

TEST(SessionStop, EndsWaitsOfTheApplicationAndInformsThePeer) {
  SessionPair pair;
  const auto at_client = pair.connect();
  const auto at_server = pair.accept();
  auto waiter = std::async(std::launch::async, [&] { return at_server.next(Deadline::never()).code(); });
  pair.server->stop();
  EXPECT_EQ(waiter.get(), Errc::kStopped);
  EXPECT_EQ(pair.server.hooks->record.count("disconnected ok"), 1);
  ASSERT_TRUE(pair.client.hooks->record.wait_for("disconnected ok"));
  EXPECT_EQ(at_client.status().code(), Errc::kPeerClosed);
}

/// Options of a client that retries, because no server listens.
SessionOptions to_nobody() {
  SessionPair pair;
  SessionOptions options = local_options(pair.server->port());
  pair.server->stop();
  options.tcp.connect_timeout = std::chrono::hours(1);
  return options;
}

TEST(SessionStop, WhileConnectingWithoutAListener) {
  const auto client = TestClient(to_nobody());
  auto connecting = std::async(std::launch::async, [&] { return client->connect().code(); });
  ASSERT_TRUE(client.hooks->record.wait_for("init"));
  client->stop();
  EXPECT_EQ(connecting.get(), Errc::kStopped);
}

/// stop() must work at any point of the start. It used to be lost between the start of the control thread and the state
/// change that announces it.
TEST(SessionStop, AtAnyMomentOfTheStart) {
  const SessionOptions options = to_nobody();
  for (int turn = 0; turn < 300; ++turn) {
    const auto client = TestClient(options);
    auto connecting = std::async(std::launch::async, [&] { return client->connect().code(); });
    ASSERT_TRUE(client.hooks->record.wait_for("init"));
    for (int later = 0; later < turn; ++later) std::this_thread::yield();
    client->stop();
    ASSERT_EQ(connecting.get(), Errc::kStopped);
  }
}

TEST(SessionStop, WhileThePeerIsSlowInTheHandshake) {
  SessionPair pair;
  std::promise<void> release;
  pair.server.hooks->configure = [&, released = release.get_future().share()](HcaConfig&, const PeerInfo&) {
    released.wait();
    return Status();
  };
  auto connecting = std::async(std::launch::async, [&] { return pair.client->connect().code(); });
  ASSERT_TRUE(pair.server.hooks->record.wait_for("config"));
  pair.client->stop();
  EXPECT_EQ(connecting.get(), Errc::kStopped);
  release.set_value();
  EXPECT_TRUE(pair.server.hooks->record.wait_for("connect_failed refused by the peer"))
      << ::testing::PrintToString(pair.server.hooks->record.lines())
      << ::testing::PrintToString(pair.server.hooks->reasons.lines());
}

TEST(SessionStop, FromEveryHookDoesNotWaitForItself) {
  for (const std::string hook : {"config", "post_connecting", "established", "disconnected"}) {
    SCOPED_TRACE(hook);
    SessionPair pair;
    const TestServer& server = pair.server;
    server.hooks->configure = [&](HcaConfig&, const PeerInfo&) {
      if (hook == "config") server->stop();
      return Status();
    };
    server.hooks->connecting = [&](const EndPoint&) {
      if (hook == "post_connecting") server->stop();
      return Status();
    };
    server.hooks->established = [&](const EndPoint& endpoint) {
      if (hook == "established") server->stop();
      if (hook == "disconnected") endpoint.stop();
    };
    server.hooks->disconnected = [&](const EndPoint&, const Status&) { server->stop(); };
    const auto endpoint = pair.client->connect();
    pair.server->stop();
    EXPECT_TRUE(pair.server->stopped());
  }
}

TEST(SessionStop, FromInitSession) {
  const auto server = make_server();
  server.hooks->initialise = [&] { server->stop(); };
  EXPECT_EQ(server->start().code(), Errc::kStopped);
  EXPECT_EQ(server->port(), 0) << "it listens";
}

/// In ThreadMode::kApplication the hook runs on the control thread, which therefore cannot end the operation that the
/// hook waits for.
TEST(SessionStop, WhileAHookConnectsToASilentServer) {
  const auto silent = TcpListenSocket::listen({"127.0.0.1", 0});
  ASSERT_TRUE(silent);
  const auto server = make_server();
  ASSERT_TRUE(server->start().ok());
  SessionOptions options = local_options(server->port());
  options.tcp.handshake_timeout = std::chrono::hours(1);
  const auto client = TestClient(options);
  client.hooks->configure = [](HcaConfig& hca, const PeerInfo&) {
    hca.thread_mode = ThreadMode::kApplication;
    return Status();
  };
  std::promise<std::error_code> outcome;
  client.hooks->disconnected = [&](const EndPoint&, const Status&) {
    client.hooks->record.add("connects");
    outcome.set_value(client->connect({"127.0.0.1", (*silent)->port()}).code());
  };
  ASSERT_TRUE(client->connect());
  server->stop();
  ASSERT_TRUE(client.hooks->record.wait_for("connects"));
  pollfd knocked{(*silent)->fd(), POLLIN, 0};
  ASSERT_EQ(::poll(&knocked, 1, 20'000), 1);
  client->stop();
  EXPECT_EQ(outcome.get_future().get(), Errc::kStopped);
}

TEST(SessionStop, ByManyThreadsAtOnce) {
  SessionPair pair;
  ASSERT_TRUE(pair.connect());
  std::vector<std::future<void>> stoppers;
  for (int i = 0; i < 4; ++i) stoppers.push_back(std::async(std::launch::async, [&] { pair.server->stop(); }));
  for (auto& each : stoppers) each.get();
  EXPECT_TRUE(pair.server->stopped());
}

TEST(SessionStop, EndpointsMayOutliveTheirSession) {
  EndPoint kept;
  {
    SessionPair pair;
    kept = pair.connect();
    const auto buffer = make_buffer(kept.device());
    ASSERT_TRUE(kept.channel().post_recv(buffer.at(0), {.id = 1}));
    pair.client.reset();
    EXPECT_FALSE(kept.alive());
    EXPECT_TRUE(kept.close().ok());
  }
  EXPECT_EQ(kept.channel().outstanding_recvs(), 0);
}

TEST(SessionStop, AClientConnectsAgainFromItsHook) {
  SessionPair pair;
  std::atomic<int> reconnects{0};
  pair.client.hooks->disconnected = [&](const EndPoint&, const Status&) {
    if (reconnects.fetch_add(1) > 0) return;
    EXPECT_TRUE(pair.client->connect().has_value());
  };
  ASSERT_TRUE(pair.connect());
  pair.accept().stop();
  ASSERT_TRUE(pair.accept());
  EXPECT_TRUE(pair.client.hooks->record.wait_for("established", 2));
}

TEST(SessionEnd, AnAbortIsNoOrderlyEndWithAnyCode) {
  for (const Errc code : {Errc::kStopped, Errc::kPeerClosed, Errc::kAborted}) {
    SessionPair pair;
    ASSERT_TRUE(pair.connect());
    pair.accept().abort(make_error(code, "the job was given up"));
    EXPECT_TRUE(pair.server.hooks->record.wait_for("disconnected " + make_error_code(code).message()));
    EXPECT_TRUE(pair.client.hooks->record.wait_for("disconnected refused by the peer"));
  }
}

}  // namespace
}  // namespace rdmacomm
