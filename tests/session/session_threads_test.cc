// Sessions that poll: hooks in both thread modes and both polling modes.
#include <gmock/gmock.h>

#include <future>
#include <thread>
#include <tuple>

#include "session/session_test_tools.h"

namespace rdmacomm {
namespace {

using namespace rdmacomm::testing;  // NOLINT(google-build-using-namespace): the tools of this test

class ServedSession : public ::testing::TestWithParam<std::tuple<ThreadMode, PollingMode>> {
 protected:
  ServedSession() {
    const auto serve = [](HcaConfig& hca, const PeerInfo&) {
      std::tie(hca.thread_mode, hca.polling_mode) = GetParam();
      hca.shared_queue_key = "all";
      hca.shared_queue_depth = 16384;  // for all endpoints of a test, also where the server is behind in ending them
      return Status();
    };
    server_->configure = serve;
    server_->connecting = [this](EndPoint& endpoint) { return post_receives(endpoint); };
    EXPECT_TRUE(server_->start().ok());
    client_ = make_client(*server_);
    client_->configure = serve;
  }

  ~ServedSession() override {
    client_->stop();
    server_->stop();
    server_buffer_.reset();  // no longer in use, and before its device goes
  }

  /// Four receives, all into one buffer: nobody looks at what arrives.
  Status post_receives(EndPoint& endpoint) {
    {
      const std::lock_guard lock(mutex_);
      if (!server_buffer_)
        server_buffer_ =
            make_buffer(endpoint.device(), RemoteAccess::kRead | RemoteAccess::kWrite | RemoteAccess::kAtomic);
    }
    for (std::uint64_t id = 0; id < 4; ++id) {
      if (const auto failed = endpoint.data()->post_recv(server_buffer_->at(id), id)) return make_error(failed, "post");
    }
    return {};
  }

  std::shared_ptr<EndPoint> connect() {
    auto endpoint = client_->connect();
    EXPECT_TRUE(endpoint.has_value()) << endpoint.status().message();
    return endpoint ? *endpoint : nullptr;
  }

  std::mutex mutex_;
  std::unique_ptr<RDMABuffer> server_buffer_;
  SessionPtr<TestServer> server_ = make_server();
  SessionPtr<TestClient> client_;
};

INSTANTIATE_TEST_SUITE_P(
    Modes, ServedSession,
    ::testing::Combine(::testing::Values(ThreadMode::kThreadPerEndPoint, ThreadMode::kThreadPerCompletionQueue),
                       ::testing::Values(PollingMode::kBusyPoll, PollingMode::kCompletionChannel)),
    [](const auto& mode) {
      return std::string(std::get<0>(mode.param) == ThreadMode::kThreadPerEndPoint ? "PerEndPoint" : "PerQueue") +
             (std::get<1>(mode.param) == PollingMode::kBusyPoll ? "BusyPoll" : "CompletionChannel");
    });

TEST_P(ServedSession, EachOperationCallsItsHook) {
  const auto endpoint = connect();
  ASSERT_TRUE(endpoint);
  const auto local = make_buffer(endpoint->device());
  const RemoteRegion remote = server_buffer_->remote_region();
  RDMAChannel& data = *endpoint->data();
  ASSERT_FALSE(data.post_send(local->at(0), 1));
  ASSERT_FALSE(data.post_write(local->at(0), remote, 2));
  ASSERT_FALSE(data.post_write_imm(local->at(0), remote, 77, 3));
  ASSERT_FALSE(data.post_read(local->at(1), remote, 4));
  ASSERT_FALSE(data.fetch_add(local->at(2).first(8), remote, 1, 5));
  for (const char* line : {"send 1", "write 2", "write 3", "read 4", "atomic 5"}) {
    EXPECT_TRUE(client_->record.wait_for(line)) << line;
  }
  EXPECT_TRUE(server_->record.wait_for("recv 0"));
  EXPECT_TRUE(server_->record.wait_for("recv_imm 1"));
  RemoteRegion wrong = remote;
  wrong.rkey ^= 0xff00;
  ASSERT_FALSE(data.post_write(local->at(0), wrong, 6));
  EXPECT_TRUE(client_->record.wait_for("failed remote access error"));
  client_->stop();
}

TEST_P(ServedSession, ReceivesThatAreLeftComeBackFlushedBeforeTheEnd) {
  const auto endpoint = connect();
  ASSERT_TRUE(endpoint);
  EXPECT_TRUE(endpoint->close().ok());
  EXPECT_EQ(client_->record.lines().back(), "disconnected ok");
  ASSERT_TRUE(server_->record.wait_for("disconnected ok"));
  const auto lines = server_->record.lines();
  EXPECT_EQ(lines.back(), "disconnected ok");
  EXPECT_EQ(server_->record.count("failed flushed"), 4);
}

TEST_P(ServedSession, HooksMayEchoAndClose) {
  std::unique_ptr<RDMABuffer> echo;
  server_->received = [&](EndPoint& endpoint, const Completion& completion) {
    EXPECT_FALSE(endpoint.data()->post_send(server_buffer_->at(completion.id), 100));
  };
  client_->connecting = [&](EndPoint& endpoint) -> Status {
    echo = make_buffer(endpoint.device());
    const auto failed = endpoint.data()->post_recv(echo->at(7), 200);
    return failed ? Status(make_error(failed, "post")) : Status();
  };
  client_->received = [](EndPoint& endpoint, const Completion&) { EXPECT_TRUE(endpoint.close().ok()); };
  client_->established = [&](EndPoint& endpoint) {
    std::memcpy(echo->data(), "ping", 4);
    EXPECT_FALSE(endpoint.data()->post_send(echo->at(0), 1));
  };
  ASSERT_NE(connect(), nullptr);
  ASSERT_TRUE(client_->record.wait_for("disconnected ok"));
  EXPECT_EQ(std::memcmp(echo->at(7).data(), "ping", 4), 0);
  ASSERT_TRUE(server_->record.wait_for("disconnected ok"));
}

TEST_P(ServedSession, StopFromACompletionHook) {
  server_->received = [&](EndPoint&, const Completion&) { server_->stop(); };
  const auto endpoint = connect();
  ASSERT_TRUE(endpoint);
  const auto local = make_buffer(endpoint->device());
  ASSERT_FALSE(endpoint->data()->post_send(local->at(0), 1));
  ASSERT_TRUE(server_->record.wait_for("disconnected ok"));
  server_->stop();
  EXPECT_TRUE(server_->endpoints().empty());
  client_->stop();
}

TEST_P(ServedSession, ManyEndpointsComeAndGo) {
  for (int round = 0; round < 3; ++round) {
    std::vector<std::shared_ptr<EndPoint>> endpoints;
    for (int i = 0; i < 6; ++i) {
      endpoints.push_back(connect());
      ASSERT_TRUE(endpoints.back());
    }
    for (const auto& endpoint : endpoints) {
      const auto local = make_buffer(endpoint->device());
      ASSERT_FALSE(endpoint->data()->post_send(local->at(0), 9));
      ASSERT_TRUE(endpoint->close().ok());
    }
  }
  EXPECT_TRUE(server_->record.wait_for("disconnected ok", 18));
  EXPECT_EQ(client_->record.count("disconnected ok"), 18);
  EXPECT_EQ(client_->record.count("send 9") + client_->record.count("failed flushed"), 18);
}

TEST_P(ServedSession, ALostPeerIsReportedToTheHook) {
  const auto endpoint = connect();
  ASSERT_TRUE(endpoint);
  endpoint->connector().shutdown();  // an end without a goodbye, as the kernel makes it for a process that dies
  EXPECT_TRUE(server_->record.wait_for("disconnected peer lost"));
  client_->stop();
}

TEST(SharedQueue, AFullOneRefusesWithNumbers) {
  const auto server = make_server();
  server->configure = [](HcaConfig& hca, const PeerInfo&) {
    hca.thread_mode = ThreadMode::kThreadPerCompletionQueue;
    hca.shared_queue_key = "small";
    hca.shared_queue_depth = 512;  // one endpoint of two channels with 128 + 128 requests
    return Status();
  };
  ASSERT_TRUE(server->start().ok());
  const auto client = make_client(*server);
  const auto first = client->connect();
  ASSERT_TRUE(first) << first.status().message();
  const auto second = client->connect();
  EXPECT_EQ(second.code(), Errc::kPeerRefused);
  EXPECT_THAT(second.error().context, ::testing::HasSubstr("512"));
  EXPECT_TRUE((*first)->close().ok());
  ASSERT_TRUE(server->record.wait_for("disconnected ok"));
}

TEST(SharedQueue, OneKeyHasOnePollingMode) {
  const auto server = make_server();
  std::atomic<int> calls{0};
  server->configure = [&](HcaConfig& hca, const PeerInfo&) {
    hca.thread_mode = ThreadMode::kThreadPerCompletionQueue;
    hca.shared_queue_key = "k";
    hca.polling_mode = calls++ == 0 ? PollingMode::kCompletionChannel : PollingMode::kBusyPoll;
    return Status();
  };
  ASSERT_TRUE(server->start().ok());
  const auto client = make_client(*server);
  const auto first = client->connect();
  ASSERT_TRUE(first);
  const auto second = client->connect();
  EXPECT_EQ(second.code(), Errc::kPeerRefused);
  EXPECT_THAT(second.error().context, ::testing::HasSubstr("polling_mode"));
}

}  // namespace
}  // namespace rdmacomm
