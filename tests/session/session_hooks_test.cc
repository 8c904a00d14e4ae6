// What holds for every hook: exceptions end what the hook was called for, close() never waits in one, and on_ended follows
// post_connecting always.
#include <gmock/gmock.h>

#include <atomic>
#include <latch>
#include <mutex>
#include <semaphore>
#include <set>
#include <stdexcept>
#include <vector>

#include "session/session_test_tools.h"

namespace rdmacomm {
namespace {

using namespace rdmacomm::testing;  // NOLINT(google-build-using-namespace): the tools of this test
using ::testing::HasSubstr;
using ::testing::Not;

[[noreturn]] void fail_hook() {
  throw std::out_of_range("map::at");
}

/// Not started: hooks are set before that.
SessionPtr<TestServer> server_in(ThreadMode mode) {
  auto server = make_server();
  server->configure = [mode](HcaConfig& hca, const PeerInfo&) {
    hca.thread_mode = mode;
    hca.shared_queue_key = "all";
    return Status();
  };
  return server;
}

// Exceptions ----------------------------------------------------------------------------------------------------------

TEST(HooksThatThrow, InitSessionEndsTheStartAndMayBeTriedAgain) {
  const auto server = make_server();
  server->initialise = fail_hook;
  EXPECT_EQ(server->start().code(), Errc::kHookFailed);
  server->initialise = [] { throw 7; };
  const Status failed = server->start();
  EXPECT_EQ(failed.code(), Errc::kHookFailed);
  EXPECT_THAT(failed.message(), HasSubstr("init_session()"));
  server->initialise = {};
  EXPECT_TRUE(server->start().ok());
  const auto client = make_client(*server);
  client->initialise = fail_hook;
  EXPECT_EQ(client->connect().code(), Errc::kHookFailed);
  client->initialise = {};
  EXPECT_TRUE(client->connect());
}

TEST(HooksThatThrow, TheClientsHooksEndConnect) {
  const auto server = server_in(ThreadMode::kApplication);
  ASSERT_TRUE(server->start().ok());
  const auto client = make_client(*server);
  client->configure = [](HcaConfig&, const PeerInfo&) -> Status { fail_hook(); };
  const auto configured = client->connect();
  EXPECT_EQ(configured.code(), Errc::kHookFailed);
  EXPECT_THAT(configured.status().message(), HasSubstr("lazy_config_hca()"));
  client->configure = {};
  client->connecting = [](EndPoint&) -> Status { fail_hook(); };
  EXPECT_EQ(client->connect().code(), Errc::kHookFailed);
  EXPECT_EQ(client->ends.lines(), std::vector<std::string>{make_error_code(Errc::kHookFailed).message()});
  client->connecting = {};
  EXPECT_TRUE(client->connect());
  client->stop();  // which waits for every connect()
}

TEST(HooksThatThrow, TheServersHooksRefuseTheirPeerAndNobodyElse) {
  const auto server = make_server();
  std::atomic<bool> configuring_throws{true};
  server->configure = [&](HcaConfig&, const PeerInfo&) -> Status {
    if (configuring_throws) fail_hook();
    return {};
  };
  std::atomic<bool> connecting_throws{true};
  server->connecting = [&](EndPoint&) -> Status {
    if (connecting_throws) fail_hook();
    return {};
  };
  ASSERT_TRUE(server->start().ok());
  const auto client = make_client(*server);
  const auto refused = client->connect();
  EXPECT_EQ(refused.code(), Errc::kPeerRefused);
  EXPECT_THAT(refused.status().message(), Not(HasSubstr("map::at"))) << "the text of the exception is not for peers";
  EXPECT_TRUE(server->record.wait_for("connect_failed a hook failed"));
  configuring_throws = false;
  EXPECT_EQ(client->connect().code(), Errc::kPeerRefused);
  EXPECT_TRUE(server->ends.wait_for("a hook failed"));
  connecting_throws = false;
  EXPECT_TRUE(client->connect());
}

class HooksIn : public ::testing::TestWithParam<ThreadMode> {};

TEST_P(HooksIn, OnEstablishedThatThrowsEndsItsEndpoint) {
  const auto server = make_server();
  std::atomic<bool> throws{true};
  server->configure = [](HcaConfig& hca, const PeerInfo&) {
    hca.thread_mode = GetParam();
    hca.shared_queue_key = "all";
    return Status();
  };
  server->established = [&](EndPoint&) {
    if (throws.exchange(false)) fail_hook();
  };
  ASSERT_TRUE(server->start().ok());
  const auto client = make_client(*server);
  (void)client->connect();  // it may have ended again by now
  EXPECT_TRUE(server->record.wait_for("disconnected a hook failed"));
  EXPECT_TRUE(server->ends.wait_for("a hook failed"));
  EXPECT_TRUE(client->connect());
}

TEST_P(HooksIn, TheLastHooksHoldNothingUpWhenTheyThrow) {
  const auto server = server_in(GetParam());
  server->disconnected = [](EndPoint&, const Status&) { fail_hook(); };
  server->ended = [](EndPoint&, const Status&) { fail_hook(); };
  ASSERT_TRUE(server->start().ok());
  const auto client = make_client(*server);
  const auto endpoint = client->connect();
  ASSERT_TRUE(endpoint) << endpoint.status().message();
  EXPECT_TRUE(server->record.wait_for("established"));
  EXPECT_TRUE((*endpoint)->close().ok());
  EXPECT_TRUE(server->ends.wait_for("ok"));
  server->stop();
}

/// A server whose endpoints have a thread and one posted receive each, and call on_recv_done for it.
struct ReceivingServer {
  ReceivingServer() {
    server->configure = [](HcaConfig& hca, const PeerInfo&) {
      hca.thread_mode = ThreadMode::kThreadPerEndPoint;
      return Status();
    };
    server->connecting = [this](EndPoint& endpoint) {
      {
        const std::lock_guard lock(mutex);
        if (!buffer) buffer = make_buffer(endpoint.device());
      }
      return Status(endpoint.data()->post_recv(buffer->at(0), {.id = 1}));
    };
  }
  void send_one(TestClient& client, EndPoint& endpoint) {
    if (!client_buffer) {
      client_device = client.device();
      client_buffer = make_buffer(*client_device);
    }
    EXPECT_TRUE(endpoint.data()->post_send(client_buffer->at(1), {.id = 1}));
  }

  SessionPtr<TestServer> server = make_server();
  std::mutex mutex;
  std::unique_ptr<RDMABuffer> buffer;
  std::shared_ptr<RDMADevice> client_device;  // outlives its session here
  std::unique_ptr<RDMABuffer> client_buffer;
};

TEST(HooksThatThrow, ACompletionHookEndsItsEndpointAlone) {
  ReceivingServer receiving;
  std::atomic<bool> throws{true};
  receiving.server->received = [&](EndPoint&, const Completion&) {
    if (throws.exchange(false)) fail_hook();
  };
  ASSERT_TRUE(receiving.server->start().ok());
  const auto client = make_client(*receiving.server);
  const auto first = client->connect();
  const auto second = client->connect();
  ASSERT_TRUE(first && second);
  receiving.send_one(*client, **first);
  EXPECT_TRUE(receiving.server->record.wait_for("disconnected a hook failed"));
  receiving.send_one(*client, **second);
  EXPECT_TRUE(receiving.server->record.wait_for("recv 1", 2));
  EXPECT_TRUE((*second)->alive());
  client->stop();
  receiving.server->stop();
}

// Context -------------------------------------------------------------------------------------------------------------

/// What a server keeps for one client.
struct ClientState {
  std::unique_ptr<RDMABuffer> buffer;
  std::atomic<int> received{0};
};

TEST(HooksContext, IsTheClientsOwnStateAsLongAsItsEndpoint) {
  const auto server = make_server();
  server->configure = [](HcaConfig& hca, const PeerInfo&) {
    hca.thread_mode = ThreadMode::kThreadPerEndPoint;
    return Status();
  };
  std::weak_ptr<ClientState> last;
  server->connecting = [&](EndPoint& endpoint) -> Status {
    const auto state = std::make_shared<ClientState>();
    state->buffer = make_buffer(endpoint.device());
    last = state;
    endpoint.set_context(state);
    endpoint.data()->set_context(state);
    return endpoint.data()->post_recv(state->buffer->at(0), {.id = 1});
  };
  std::atomic<bool> found{true};
  server->received = [&](EndPoint& endpoint, const Completion& completion) {
    auto* const state = endpoint.context<ClientState>();
    found = found && state != nullptr && completion.channel->context<ClientState>() == state &&
            endpoint.context<int>() == nullptr;
    if (state != nullptr && completion.ok()) ++state->received;
  };
  std::atomic<int> most{0};
  server->ended = [&](EndPoint& endpoint, const Status&) {
    most = std::max<int>(most, endpoint.context<ClientState>()->received);
  };
  ASSERT_TRUE(server->start().ok());
  const auto client = make_client(*server);
  const auto sends = [&] {
    const auto endpoint = client->connect();
    ASSERT_TRUE(endpoint) << endpoint.status().message();
    const auto buffer = make_buffer(*client->device());
    ASSERT_TRUE((*endpoint)->data()->post_send(buffer->at(1), {.id = 1}));
    EXPECT_TRUE(wait_one(**endpoint).ok());
    EXPECT_TRUE((*endpoint)->close().ok());
  };
  for (int i = 1; i <= 2; ++i) {
    sends();
    EXPECT_TRUE(server->ends.wait_for("ok", i));
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
  std::vector<EndPoint*> endpoints;
  receiving.server->established = [&](EndPoint& endpoint) {
    const std::lock_guard lock(mutex);
    endpoints.push_back(&endpoint);
  };
  std::latch both_in_hooks(2);
  receiving.server->received = [&](EndPoint& endpoint, const Completion& completion) {
    if (!completion.ok()) return;
    both_in_hooks.arrive_and_wait();
    EndPoint* other = nullptr;
    {
      const std::lock_guard lock(mutex);
      other = endpoints[endpoints[0] == &endpoint ? 1 : 0];
    }
    EXPECT_TRUE(other->close().ok());
  };
  ASSERT_TRUE(receiving.server->start().ok());
  const auto client = make_client(*receiving.server);
  auto one = client->connect();
  auto two = client->connect();
  ASSERT_TRUE(one && two);
  ASSERT_TRUE(receiving.server->record.wait_for("established", 2));
  receiving.send_one(*client, **one);
  receiving.send_one(*client, **two);
  EXPECT_TRUE(receiving.server->ends.wait_for("ok", 2));
  client->stop();
  receiving.server->stop();
}

TEST(CloseOutsideAHook, SaysThatAHookHoldsItUpUntilItDoesNot) {
  ReceivingServer receiving;
  std::latch in_hook(1);
  std::latch leave(1);
  receiving.server->received = [&](EndPoint&, const Completion&) {
    in_hook.count_down();
    leave.wait();
  };
  ASSERT_TRUE(receiving.server->start().ok());
  const auto client = make_client(*receiving.server);
  const auto at_client = client->connect();
  ASSERT_TRUE(at_client);
  receiving.send_one(*client, **at_client);
  const auto endpoint = receiving.server->wait_for_endpoint(soon());
  ASSERT_TRUE(endpoint);
  in_hook.wait();
  (*endpoint)->stop();
  for (int i = 0; i < 2; ++i) {
    const Status held_up = (*endpoint)->finish(tiny());
    EXPECT_EQ(held_up.code(), Errc::kTimeout) << "it was not closed before either";
    EXPECT_THAT(held_up.message(), HasSubstr("has not returned yet"));
  }
  leave.count_down();
  EXPECT_TRUE((*endpoint)->close().ok());
  EXPECT_TRUE((*endpoint)->close().ok());
  client->stop();
  receiving.server->stop();
}

// on_ended ------------------------------------------------------------------------------------------------------------

TEST_P(HooksIn, OnEndedFollowsOnDisconnectedOnce) {
  const auto server = server_in(GetParam());
  server->ended = [&](EndPoint&, const Status&) { server->record.add("ended"); };
  ASSERT_TRUE(server->start().ok());
  const auto client = make_client(*server);
  const auto endpoint = client->connect();
  ASSERT_TRUE(endpoint) << endpoint.status().message();
  EXPECT_TRUE(server->record.wait_for("established"));
  EXPECT_TRUE((*endpoint)->close().ok());
  EXPECT_TRUE(client->ends.wait_for("ok"));
  EXPECT_TRUE(server->record.wait_for("ended"));
  server->stop();
  const auto lines = server->record.lines();
  ASSERT_GE(lines.size(), 2U);
  EXPECT_EQ(std::vector(lines.end() - 2, lines.end()), (std::vector<std::string>{"disconnected ok", "ended"}));
  EXPECT_EQ(server->ends.lines().size(), 1U);
  client->stop();
  EXPECT_EQ(client->ends.lines().size(), 1U);
}

TEST_P(HooksIn, OnEndedFollowsWhereThePeerLeavesAtTheBarrier) {
  const auto server = server_in(GetParam());
  std::mutex mutex;
  std::set<const EndPoint*> connecting;
  server->connecting = [&](EndPoint& endpoint) {
    const std::lock_guard lock(mutex);
    connecting.insert(&endpoint);
    return Status();
  };
  server->ended = [&](EndPoint& endpoint, const Status& why) {
    const std::lock_guard lock(mutex);
    EXPECT_EQ(connecting.erase(&endpoint), 1U);
    EXPECT_FALSE(why.ok());
  };
  ASSERT_TRUE(server->start().ok());
  const auto client = make_client(*server);
  client->connecting = [](EndPoint&) { return Status(make_error(Errc::kInvalidArgument, "not this one")); };
  for (int i = 1; i <= 5; ++i) {
    EXPECT_EQ(client->connect().code(), Errc::kInvalidArgument);
    EXPECT_EQ(client->ends.lines().size(), static_cast<std::size_t>(i));
    EXPECT_TRUE(server->record.wait_for("connect_failed refused by the peer", i));
  }
  server->stop();
  EXPECT_TRUE(connecting.empty());
  EXPECT_EQ(server->ends.lines().size(), static_cast<std::size_t>(server->record.count("post_connecting")));
  EXPECT_EQ(server->record.count("established"), 0);
}

INSTANTIATE_TEST_SUITE_P(Modes, HooksIn,
                         ::testing::Values(ThreadMode::kApplication, ThreadMode::kThreadPerEndPoint,
                                           ThreadMode::kThreadPerCompletionQueue));

TEST(OnEnded, FollowsWhereTheSessionIsStoppedAtTheBarrier) {
  const auto server = server_in(ThreadMode::kApplication);
  ASSERT_TRUE(server->start().ok());
  const auto client = make_client(*server);
  client->connecting = [&](EndPoint&) {
    client->stop();
    return Status();
  };
  EXPECT_EQ(client->connect().code(), Errc::kStopped);
  EXPECT_EQ(client->ends.lines().size(), 1U);
}

// A session that is destroyed while it runs ---------------------------------------------------------------------------

template <typename Run>
std::string said_by(Run&& run) {
  ::testing::internal::CaptureStderr();
  run();
  return ::testing::internal::GetCapturedStderr();
}

/// What the log has of a server that refuses each of its clients.
std::size_t lines_of_refusals(int clients) {
  struct Refusing : ServerSession {
    using ServerSession::ServerSession;
    Status lazy_config_hca(HcaConfig&, const PeerInfo&) override {
      return make_error(Errc::kIncompatiblePeer, "nobody is served here");
    }
    void on_connect_failed(const std::string& peer, const Error& why) override {
      ServerSession::on_connect_failed(peer, why);
      refused.release();
    }
    std::counting_semaphore<> refused{0};
  };
  const std::string log = said_by([clients] {
    const auto server = make_session<Refusing>(local_options());
    EXPECT_TRUE(server->start().ok());
    const auto client = make_session<ClientSession>(local_options(server->port()));
    for (int i = 0; i < clients; ++i) EXPECT_EQ(client->connect().code(), Errc::kPeerRefused);
    for (int i = 0; i < clients; ++i) server->refused.acquire();
  });
  std::size_t lines = 0;
  for (auto at = log.find("nobody is served here"); at != std::string::npos;
       at = log.find("nobody is served here", at + 1))
    ++lines;
  return lines;
}

/// One line in LogPace::kPeriod, however many come.
TEST(OnConnectFailed, ClientsThatAreRefusedDoNotFillTheLog) {
  EXPECT_EQ(lines_of_refusals(1), 1U);
  EXPECT_LE(lines_of_refusals(60), 6U);
}

TEST(SessionOnTheStack, SaysThatItsHooksAreLost) {
  const std::string lost = said_by([] {
    TestServer server(local_options());
    EXPECT_TRUE(server.start().ok());
  });
  EXPECT_THAT(lost, HasSubstr("is destroyed while it runs"));
  const std::string fine = said_by([] {
    TestServer stopped(local_options());
    EXPECT_TRUE(stopped.start().ok());
    stopped.stop();
    ServerSession without_hooks(local_options());
    EXPECT_TRUE(without_hooks.start().ok());
    const auto managed = make_server();
    EXPECT_TRUE(managed->start().ok());
  });
  EXPECT_THAT(fine, Not(HasSubstr("is destroyed while it runs")));
}

}  // namespace
}  // namespace rdmacomm
