// Rules that hold for every hook: an exception ends the operation that called the hook, close() never waits in a hook,
// and on_ended always follows post_connecting.
#include <gmock/gmock.h>

#include <atomic>
#include <latch>
#include <mutex>
#include <semaphore>
#include <set>
#include <stdexcept>
#include <vector>

#include "endpoint/endpoint_core.h"
#include "session/session_test_tools.h"

namespace rdmacomm {
namespace {

using namespace rdmacomm::testing;  // NOLINT(google-build-using-namespace): the tools of this test
using ::testing::HasSubstr;
using ::testing::Not;

[[noreturn]] void fail_hook() {
  throw std::out_of_range("map::at");
}

/// Not started, because hooks must be set before the start.
TestServer server_in(ThreadMode mode) {
  auto server = make_server();
  server.hooks->configure = [mode](HcaConfig& hca, const PeerInfo&) {
    hca.thread_mode = mode;
    hca.shared_queue_key = "all";
    return Status();
  };
  return server;
}

// Exceptions ----------------------------------------------------------------------------------------------------------

TEST(HooksThatThrow, InitSessionEndsTheStartWhichMayBeRetried) {
  const auto server = make_server();
  server.hooks->initialise = fail_hook;
  EXPECT_EQ(server->start().code(), Errc::kHookFailed);
  server.hooks->initialise = [] { throw 7; };
  const Status failed = server->start();
  EXPECT_EQ(failed.code(), Errc::kHookFailed);
  EXPECT_THAT(failed.message(), HasSubstr("init_session()"));
  server.hooks->initialise = {};
  EXPECT_TRUE(server->start().ok());
  const auto client = make_client(*server);
  client.hooks->initialise = fail_hook;
  EXPECT_EQ(client->connect().code(), Errc::kHookFailed);
  client.hooks->initialise = {};
  EXPECT_TRUE(client->connect());
}

TEST(HooksThatThrow, TheClientsHooksEndConnect) {
  const auto server = server_in(ThreadMode::kApplication);
  ASSERT_TRUE(server->start().ok());
  const auto client = make_client(*server);
  client.hooks->configure = [](HcaConfig&, const PeerInfo&) -> Status { fail_hook(); };
  const auto configured = client->connect();
  EXPECT_EQ(configured.code(), Errc::kHookFailed);
  EXPECT_THAT(configured.status().message(), HasSubstr("lazy_config_hca()"));
  client.hooks->configure = {};
  client.hooks->connecting = [](const EndPoint&) -> Status { fail_hook(); };
  EXPECT_EQ(client->connect().code(), Errc::kHookFailed);
  EXPECT_EQ(client.hooks->ends.lines(), std::vector<std::string>{make_error_code(Errc::kHookFailed).message()});
  client.hooks->connecting = {};
  EXPECT_TRUE(client->connect());
  client->stop();  // waits for every connect()
}

TEST(HooksThatThrow, TheServersHooksRefuseTheirPeerAlone) {
  const auto server = make_server();
  std::atomic<bool> configuring_throws{true};
  server.hooks->configure = [&](HcaConfig&, const PeerInfo&) -> Status {
    if (configuring_throws) fail_hook();
    return {};
  };
  std::atomic<bool> connecting_throws{true};
  server.hooks->connecting = [&](const EndPoint&) -> Status {
    if (connecting_throws) fail_hook();
    return {};
  };
  ASSERT_TRUE(server->start().ok());
  const auto client = make_client(*server);
  const auto refused = client->connect();
  EXPECT_EQ(refused.code(), Errc::kPeerRefused);
  EXPECT_THAT(refused.status().message(), Not(HasSubstr("map::at"))) << "the text of the exception is not for peers";
  EXPECT_TRUE(server.hooks->record.wait_for("connect_failed a hook failed"));
  configuring_throws = false;
  EXPECT_EQ(client->connect().code(), Errc::kPeerRefused);
  EXPECT_TRUE(server.hooks->ends.wait_for("a hook failed"));
  connecting_throws = false;
  EXPECT_TRUE(client->connect());
}

class HooksIn : public ::testing::TestWithParam<ThreadMode> {};

TEST_P(HooksIn, OnEstablishedThatThrowsEndsItsEndpoint) {
  const auto server = make_server();
  std::atomic<bool> throws{true};
  server.hooks->configure = [](HcaConfig& hca, const PeerInfo&) {
    hca.thread_mode = GetParam();
    hca.shared_queue_key = "all";
    return Status();
  };
  server.hooks->established = [&](const EndPoint&) {
    if (throws.exchange(false)) fail_hook();
  };
  ASSERT_TRUE(server->start().ok());
  const auto client = make_client(*server);
  (void)client->connect();  // the connection may have ended already
  EXPECT_TRUE(server.hooks->record.wait_for("disconnected a hook failed"));
  EXPECT_TRUE(server.hooks->ends.wait_for("a hook failed"));
  EXPECT_TRUE(client->connect());
}

TEST_P(HooksIn, ExceptionsOfTheLastHooksDelayNothing) {
  const auto server = server_in(GetParam());
  server.hooks->disconnected = [](const EndPoint&, const Status&) { fail_hook(); };
  server.hooks->ended = [](const EndPoint&, const Status&) { fail_hook(); };
  ASSERT_TRUE(server->start().ok());
  const auto client = make_client(*server);
  const auto endpoint = client->connect();
  ASSERT_TRUE(endpoint) << endpoint.status().message();
  EXPECT_TRUE(server.hooks->record.wait_for("established"));
  EXPECT_TRUE((*endpoint).close().ok());
  EXPECT_TRUE(server.hooks->ends.wait_for("ok"));
  server->stop();
}

/// A server whose endpoints each have a thread and one posted receive, and call on_recv_done for it.
struct ReceivingServer {
  ReceivingServer() {
    server.hooks->configure = [](HcaConfig& hca, const PeerInfo&) {
      hca.thread_mode = ThreadMode::kThreadPerEndPoint;
      return Status();
    };
    server.hooks->connecting = [this](const EndPoint& endpoint) {
      {
        const std::lock_guard lock(mutex);
        if (!buffer) buffer = make_buffer(endpoint.device());
      }
      return Status(endpoint.channel().post_recv(buffer.at(0), {.id = 1}));
    };
  }
  void send_one(const TestClient& client, const EndPoint& endpoint) {
    if (!client_buffer) {
      client_device = client->device();
      client_buffer = make_buffer(client_device);
    }
    EXPECT_TRUE(endpoint.channel().post_send(client_buffer.at(1), {.id = 1}));
  }

  TestServer server = make_server();
  std::mutex mutex;
  RDMABuffer buffer;
  RDMADevice client_device;  // outlives its session
  RDMABuffer client_buffer;
};

TEST(HooksThatThrow, ACompletionHookEndsItsEndpointAlone) {
  ReceivingServer receiving;
  std::atomic<bool> throws{true};
  receiving.server.hooks->received = [&](const EndPoint&, const Completion&) {
    if (throws.exchange(false)) fail_hook();
  };
  ASSERT_TRUE(receiving.server->start().ok());
  const auto client = make_client(*receiving.server);
  const auto first = client->connect();
  const auto second = client->connect();
  ASSERT_TRUE(first && second);
  receiving.send_one(*client, *first);
  EXPECT_TRUE(receiving.server.hooks->record.wait_for("disconnected a hook failed"));
  receiving.send_one(*client, *second);
  EXPECT_TRUE(receiving.server.hooks->record.wait_for("recv 1", 2));
  EXPECT_TRUE((*second).alive());
  client->stop();
  receiving.server->stop();
}

// Context -------------------------------------------------------------------------------------------------------------

/// State that a server keeps for one client.
struct ClientState {
  RDMABuffer buffer;
  std::atomic<int> received{0};
};

TEST(HooksContext, IsTheClientsOwnStateAsLongAsItsEndpoint) {
  const auto server = make_server();
  server.hooks->configure = [](HcaConfig& hca, const PeerInfo&) {
    hca.thread_mode = ThreadMode::kThreadPerEndPoint;
    return Status();
  };
  std::weak_ptr<ClientState> last;
  server.hooks->connecting = [&](const EndPoint& endpoint) -> Status {
    const auto state = std::make_shared<ClientState>();
    state->buffer = make_buffer(endpoint.device());
    last = state;
    endpoint.set_context(state);
    endpoint.channel().set_context(state);
    return endpoint.channel().post_recv(state->buffer.at(0), {.id = 1});
  };
  std::atomic<bool> found{true};
  server.hooks->received = [&](const EndPoint& endpoint, const Completion& completion) {
    auto* const state = endpoint.context<ClientState>();
    found = found && state != nullptr && completion.channel->context<ClientState>() == state &&
            endpoint.context<int>() == nullptr;
    if (state != nullptr && completion.ok()) ++state->received;
  };
  std::atomic<int> most{0};
  server.hooks->ended = [&](const EndPoint& endpoint, const Status&) {
    most = std::max<int>(most, endpoint.context<ClientState>()->received);
  };
  ASSERT_TRUE(server->start().ok());
  const auto client = make_client(*server);
  const auto sends = [&] {
    const auto endpoint = client->connect();
    ASSERT_TRUE(endpoint) << endpoint.status().message();
    const auto buffer = make_buffer(client->device());
    ASSERT_TRUE((*endpoint).channel().post_send(buffer.at(1), {.id = 1}));
    EXPECT_TRUE(wait_one(*endpoint).ok());
    EXPECT_TRUE((*endpoint).close().ok());
  };
  for (int i = 1; i <= 2; ++i) {
    sends();
    EXPECT_TRUE(server.hooks->ends.wait_for("ok", i));
  }
  server->stop();
  EXPECT_TRUE(found);
  EXPECT_EQ(most, 1) << "each client has its own";
  EXPECT_TRUE(last.expired());
}

// close() -------------------------------------------------------------------------------------------------------------

TEST(CloseInAHook, DoesNotWaitWhicheverEndpointItCloses) {
  ReceivingServer receiving;
  std::mutex mutex;
  std::vector<EndPoint> endpoints;
  receiving.server.hooks->established = [&](const EndPoint& endpoint) {
    const std::lock_guard lock(mutex);
    endpoints.push_back(endpoint);
  };
  std::latch both_in_hooks(2);
  receiving.server.hooks->received = [&](const EndPoint& endpoint, const Completion& completion) {
    if (!completion.ok()) return;
    both_in_hooks.arrive_and_wait();
    EndPoint other;
    {
      const std::lock_guard lock(mutex);
      other = endpoints[endpoints[0] == endpoint ? 1 : 0];
    }
    EXPECT_TRUE(other.close().ok());
  };
  ASSERT_TRUE(receiving.server->start().ok());
  const auto client = make_client(*receiving.server);
  auto one = client->connect();
  auto two = client->connect();
  ASSERT_TRUE(one && two);
  ASSERT_TRUE(receiving.server.hooks->record.wait_for("established", 2));
  receiving.send_one(*client, *one);
  receiving.send_one(*client, *two);
  EXPECT_TRUE(receiving.server.hooks->ends.wait_for("ok", 2));
  client->stop();
  receiving.server->stop();
}

TEST(CloseOutsideAHook, NamesTheHookThatDelaysIt) {
  ReceivingServer receiving;
  std::latch in_hook(1);
  std::latch leave(1);
  receiving.server.hooks->received = [&](const EndPoint&, const Completion&) {
    in_hook.count_down();
    leave.wait();
  };
  ASSERT_TRUE(receiving.server->start().ok());
  const auto client = make_client(*receiving.server);
  const auto at_client = client->connect();
  ASSERT_TRUE(at_client);
  receiving.send_one(*client, *at_client);
  const auto endpoint = receiving.server->accept(soon());
  ASSERT_TRUE(endpoint);
  in_hook.wait();
  (*endpoint).stop();
  for (int i = 0; i < 2; ++i) {
    const Status held_up = endpoint->core()->finish(tiny());
    EXPECT_EQ(held_up.code(), Errc::kTimeout) << "it was not closed before either";
    EXPECT_THAT(held_up.message(), HasSubstr("has not returned yet"));
  }
  leave.count_down();
  EXPECT_TRUE((*endpoint).close().ok());
  EXPECT_TRUE((*endpoint).close().ok());
  client->stop();
  receiving.server->stop();
}

// on_ended ------------------------------------------------------------------------------------------------------------

TEST_P(HooksIn, OnEndedFollowsOnDisconnectedOnce) {
  const auto server = server_in(GetParam());
  server.hooks->ended = [&](const EndPoint&, const Status&) { server.hooks->record.add("ended"); };
  ASSERT_TRUE(server->start().ok());
  const auto client = make_client(*server);
  const auto endpoint = client->connect();
  ASSERT_TRUE(endpoint) << endpoint.status().message();
  EXPECT_TRUE(server.hooks->record.wait_for("established"));
  EXPECT_TRUE((*endpoint).close().ok());
  EXPECT_TRUE(client.hooks->ends.wait_for("ok"));
  EXPECT_TRUE(server.hooks->record.wait_for("ended"));
  server->stop();
  const auto lines = server.hooks->record.lines();
  ASSERT_GE(lines.size(), 2U);
  EXPECT_EQ(std::vector(lines.end() - 2, lines.end()), (std::vector<std::string>{"disconnected ok", "ended"}));
  EXPECT_EQ(server.hooks->ends.lines().size(), 1U);
  client->stop();
  EXPECT_EQ(client.hooks->ends.lines().size(), 1U);
}

TEST_P(HooksIn, OnEndedFollowsIfThePeerLeavesAtTheBarrier) {
  const auto server = server_in(GetParam());
  std::mutex mutex;
  std::set<const EndPointCore*> connecting;
  server.hooks->connecting = [&](const EndPoint& endpoint) {
    const std::lock_guard lock(mutex);
    connecting.insert(endpoint.core().get());
    return Status();
  };
  server.hooks->ended = [&](const EndPoint& endpoint, const Status& why) {
    const std::lock_guard lock(mutex);
    EXPECT_EQ(connecting.erase(endpoint.core().get()), 1U);
    EXPECT_FALSE(why.ok());
  };
  ASSERT_TRUE(server->start().ok());
  const auto client = make_client(*server);
  client.hooks->connecting = [](const EndPoint&) { return Status(make_error(Errc::kInvalidArgument, "not this one")); };
  for (int i = 1; i <= 5; ++i) {
    EXPECT_EQ(client->connect().code(), Errc::kInvalidArgument);
    EXPECT_EQ(client.hooks->ends.lines().size(), static_cast<std::size_t>(i));
    EXPECT_TRUE(server.hooks->record.wait_for("connect_failed refused by the peer", i));
  }
  server->stop();
  EXPECT_TRUE(connecting.empty());
  EXPECT_EQ(server.hooks->ends.lines().size(), static_cast<std::size_t>(server.hooks->record.count("post_connecting")));
  EXPECT_EQ(server.hooks->record.count("established"), 0);
}

INSTANTIATE_TEST_SUITE_P(Modes, HooksIn,
                         ::testing::Values(ThreadMode::kApplication, ThreadMode::kThreadPerEndPoint,
                                           ThreadMode::kThreadPerCompletionQueue));

TEST(OnEnded, FollowsIfTheSessionIsStoppedAtTheBarrier) {
  const auto server = server_in(ThreadMode::kApplication);
  ASSERT_TRUE(server->start().ok());
  const auto client = make_client(*server);
  client.hooks->connecting = [&](const EndPoint&) {
    client->stop();
    return Status();
  };
  EXPECT_EQ(client->connect().code(), Errc::kStopped);
  EXPECT_EQ(client.hooks->ends.lines().size(), 1U);
}

// on_connect_failed ---------------------------------------------------------------------------------------------------

template <typename Run>
std::string said_by(Run&& run) {
  ::testing::internal::CaptureStderr();
  run();
  return ::testing::internal::GetCapturedStderr();
}

/// Number of log lines of a server that refuses each of `clients` clients.
std::size_t lines_of_refusals(int clients) {
  const std::string log = said_by([clients] {
    std::counting_semaphore<> refused{0};
    const ServerSession server(local_options(), {.lazy_config_hca = [](HcaConfig&, const PeerInfo&) -> Status {
                                                   return make_error(Errc::kIncompatiblePeer, "nobody is served here");
                                                 },
                                                 .on_connect_failed =
                                                     [&](const std::string&, const Error&) {
                                                       refused.release();
                                                       return false;
                                                     }});
    EXPECT_TRUE(server.start().ok());
    const ClientSession client(local_options(server.port()));
    for (int i = 0; i < clients; ++i) EXPECT_EQ(client.connect().code(), Errc::kPeerRefused);
    for (int i = 0; i < clients; ++i) refused.acquire();
    server.stop();  // the line is written after the hook returns
  });
  std::size_t lines = 0;
  for (auto at = log.find("nobody is served here"); at != std::string::npos;
       at = log.find("nobody is served here", at + 1))
    ++lines;
  return lines;
}

// An Outcome has no text of its own, so the peer receives the text of the code.
TEST(RefusingHooks, SendTheTextOfTheCodeIfTheyGiveNone) {
  auto server = make_server();
  server.hooks->configure = [](HcaConfig&, const PeerInfo&) { return Status(Outcome(Errc::kReceiveQueueFull)); };
  ASSERT_TRUE(server->start().ok());
  const auto client = make_client(*server);
  const auto refused = client->connect();
  EXPECT_THAT(refused.status().message(), HasSubstr(Outcome(Errc::kReceiveQueueFull).message()));
}

/// One line per LogPace::kPeriod, however many clients are refused.
TEST(OnConnectFailed, RefusedClientsDoNotFloodTheLog) {
  EXPECT_EQ(lines_of_refusals(1), 1U);
  EXPECT_LE(lines_of_refusals(60), 6U);
}

}  // namespace
}  // namespace rdmacomm
