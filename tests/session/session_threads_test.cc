// Sessions that poll: hooks in both thread modes and both polling modes.
#include <gmock/gmock.h>
#include <sched.h>

#include <fstream>
#include <future>
#include <map>
#include <set>
#include <thread>
#include <tuple>

#include "endpoint/endpoint_core.h"
#include "session/session_test_tools.h"
#include "support/polling_modes.h"
#include "support/thread_modes.h"

namespace rdmacomm {
namespace {

using namespace rdmacomm::testing;  // NOLINT(google-build-using-namespace): the tools of this test

class ServedSession : public ::testing::TestWithParam<std::tuple<ThreadMode, PollingMode>> {
 protected:
  ServedSession() {
    const auto serve = [](HcaConfig& hca, const PeerInfo&) {
      std::tie(hca.thread_mode, hca.polling_mode) = GetParam();
      hca.shared_queue_key = "all";
      hca.shared_queue_depth = 16384;  // for all endpoints of a test, even if the server ends them late
      return Status();
    };
    server_.hooks->configure = serve;
    server_.hooks->connecting = [this](const EndPoint& endpoint) { return post_receives(endpoint); };
    EXPECT_TRUE(server_->start().ok());
    client_ = make_client(*server_);
    client_.hooks->configure = serve;
  }

  ~ServedSession() override {
    client_->stop();
    server_->stop();
    server_buffer_ = {};  // unused by now; must be released before its device
  }

  /// Posts four receives into one buffer, which no test reads.
  Status post_receives(const EndPoint& endpoint) {
    {
      const std::lock_guard lock(mutex_);
      if (!server_buffer_)
        server_buffer_ =
            make_buffer(endpoint.device(), RemoteAccess::kRead | RemoteAccess::kWrite | RemoteAccess::kAtomic);
    }
    for (std::uint64_t id = 0; id < 4; ++id) {
      if (Outcome posted = endpoint.channel().post_recv(server_buffer_.at(id), {.id = id}); !posted) return posted;
    }
    return {};
  }

  EndPoint connect() {
    auto endpoint = client_->connect();
    EXPECT_TRUE(endpoint.has_value()) << endpoint.status().message();
    return endpoint ? *endpoint : EndPoint();
  }

  std::mutex mutex_;
  RDMABuffer server_buffer_;
  TestServer server_ = make_server();
  TestClient client_;
};

INSTANTIATE_TEST_SUITE_P(Modes, ServedSession,
                         ::testing::Combine(::testing::Values(ThreadMode::kThreadPerChannel,
                                                              ThreadMode::kThreadPerEndPoint,
                                                              ThreadMode::kThreadPerCompletionQueue),
                                            every_polling_mode()),
                         [](const auto& mode) {
                           return thread_mode_name(std::get<0>(mode.param)) + instance_name(std::get<1>(mode.param));
                         });

TEST_P(ServedSession, EachOperationCallsItsHook) {
  const auto endpoint = connect();
  ASSERT_TRUE(endpoint);
  const auto local = make_buffer(endpoint.device());
  const RemoteRegion remote = server_buffer_.remote_region();
  RDMAChannel& data = endpoint.channel();
  ASSERT_TRUE(data.post_send(local.at(0), {.id = 1}));
  ASSERT_TRUE(data.post_write(local.at(0), remote, {.id = 2}));
  ASSERT_TRUE(data.post_write(local.at(0), remote, {.id = 3, .immediate = 77}));
  ASSERT_TRUE(data.post_read(local.at(1), remote, {.id = 4}));
  ASSERT_TRUE(data.post_fetch_add(local.at(2).first(8), remote, {.addend = 1}, {.id = 5}));
  for (const char* line : {"send 1", "write 2", "write 3", "read 4", "atomic 5"}) {
    EXPECT_TRUE(client_.hooks->record.wait_for(line)) << line;
  }
  EXPECT_TRUE(server_.hooks->record.wait_for("recv 0"));
  EXPECT_TRUE(server_.hooks->record.wait_for("recv_imm 1"));
  RemoteRegion wrong = remote;
  wrong.rkey ^= 0xff00;
  ASSERT_TRUE(data.post_write(local.at(0), wrong, {.id = 6}));
  EXPECT_TRUE(client_.hooks->record.wait_for("failed remote access error"));
  client_->stop();
}

TEST_P(ServedSession, RemainingReceivesAreFlushedBeforeTheEnd) {
  const auto endpoint = connect();
  ASSERT_TRUE(endpoint);
  EXPECT_TRUE(endpoint.close().ok());
  EXPECT_EQ(client_.hooks->record.lines().back(), "disconnected ok");
  ASSERT_TRUE(server_.hooks->record.wait_for("disconnected ok"));
  const auto lines = server_.hooks->record.lines();
  EXPECT_EQ(lines.back(), "disconnected ok");
  EXPECT_EQ(server_.hooks->record.count("failed flushed"), 4);
}

TEST_P(ServedSession, HooksMayEchoAndClose) {
  RDMABuffer echo;
  server_.hooks->received = [&](const EndPoint& endpoint, const Completion& completion) {
    EXPECT_TRUE(endpoint.channel().post_send(server_buffer_.at(completion.id), {.id = 100}));
  };
  client_.hooks->connecting = [&](const EndPoint& endpoint) -> Status {
    echo = make_buffer(endpoint.device());
    return endpoint.channel().post_recv(echo.at(7), {.id = 200});
  };
  client_.hooks->received = [](const EndPoint& endpoint, const Completion&) { EXPECT_TRUE(endpoint.close().ok()); };
  client_.hooks->established = [&](const EndPoint& endpoint) {
    std::memcpy(echo.data(), "ping", 4);
    EXPECT_TRUE(endpoint.channel().post_send(echo.at(0), {.id = 1}));
  };
  ASSERT_TRUE(connect());
  ASSERT_TRUE(client_.hooks->record.wait_for("disconnected ok"));
  EXPECT_EQ(std::memcmp(echo.at(7).data(), "ping", 4), 0);
  ASSERT_TRUE(server_.hooks->record.wait_for("disconnected ok"));
}

TEST_P(ServedSession, StopFromACompletionHook) {
  server_.hooks->received = [&](const EndPoint&, const Completion&) { server_->stop(); };
  const auto endpoint = connect();
  ASSERT_TRUE(endpoint);
  const auto local = make_buffer(endpoint.device());
  ASSERT_TRUE(endpoint.channel().post_send(local.at(0), {.id = 1}));
  ASSERT_TRUE(server_.hooks->record.wait_for("disconnected ok"));
  server_->stop();
  EXPECT_TRUE(server_->endpoints().empty());
  client_->stop();
}

TEST_P(ServedSession, ManyEndpointsConnectAndEnd) {
  for (int round = 0; round < 3; ++round) {
    std::vector<EndPoint> endpoints;
    for (int i = 0; i < 6; ++i) {
      endpoints.push_back(connect());
      ASSERT_TRUE(endpoints.back());
    }
    for (const auto& endpoint : endpoints) {
      const auto local = make_buffer(endpoint.device());
      ASSERT_TRUE(endpoint.channel().post_send(local.at(0), {.id = 9}));
      ASSERT_TRUE(endpoint.close().ok());
    }
  }
  EXPECT_TRUE(server_.hooks->record.wait_for("disconnected ok", 18));
  EXPECT_EQ(client_.hooks->record.count("disconnected ok"), 18);
  EXPECT_EQ(client_.hooks->record.count("send 9") + client_.hooks->record.count("failed flushed"), 18);
}

TEST_P(ServedSession, ALostPeerIsReportedToTheHook) {
  const auto endpoint = connect();
  ASSERT_TRUE(endpoint);
  endpoint.core()->connector().shutdown();  // ends without GOODBYE, like a process that dies
  EXPECT_TRUE(server_.hooks->record.wait_for("disconnected peer lost"));
  client_->stop();
}

TEST(SharedQueue, AFullOneRefusesWithNumbers) {
  const auto server = make_server();
  server.hooks->configure = [](HcaConfig& hca, const PeerInfo&) {
    hca.thread_mode = ThreadMode::kThreadPerCompletionQueue;
    hca.shared_queue_key = "small";
    hca.shared_queue_depth = 512;  // one endpoint with two channels of 128 + 128 requests
    return Status();
  };
  ASSERT_TRUE(server->start().ok());
  const auto client = make_client(*server);
  const auto first = client->connect();
  ASSERT_TRUE(first) << first.status().message();
  const auto second = client->connect();
  EXPECT_EQ(second.code(), Errc::kPeerRefused);
  EXPECT_THAT(second.error().context, ::testing::HasSubstr("512"));
  EXPECT_TRUE((*first).close().ok());
  ASSERT_TRUE(server.hooks->record.wait_for("disconnected ok"));
}

TEST(SharedQueue, OneKeyHasOnePollingMode) {
  const auto server = make_server();
  std::atomic<int> calls{0};
  server.hooks->configure = [&](HcaConfig& hca, const PeerInfo&) {
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

/// A client with one queue for all endpoints. One endpoint never lets the queue become empty: each completion posts the
/// next request.
class BusyQueue : public ::testing::TestWithParam<PollingMode> {
 protected:
  class Client final : public Recording {
   public:
    void on_write_done(const EndPoint& endpoint, const Completion& completion) override {
      done.fetch_add(1);
      if (completion.id == kBusy && endpoint.alive()) (void)endpoint.channel().post_write({}, {}, {.id = kBusy});
    }
    std::atomic<int> done{0};
  };
  static constexpr std::uint64_t kBusy = 99;

  BusyQueue() {
    EXPECT_TRUE(server_->start().ok());
    client_ = Hooked<ClientSession, Client>(local_options(server_->port()));
    client_.hooks->configure = [](HcaConfig& hca, const PeerInfo&) {
      hca.thread_mode = ThreadMode::kThreadPerCompletionQueue;
      hca.polling_mode = GetParam();
      hca.shared_queue_key = "all";
      return Status();
    };
  }
  /// Returns the client's endpoint and the server's, which is its newest.
  std::pair<EndPoint, EndPoint> connect() {
    auto endpoint = client_->connect();
    EXPECT_TRUE(endpoint.has_value()) << endpoint.status().message();
    auto theirs = server_->accept(soon());
    EXPECT_TRUE(theirs.has_value()) << theirs.status().message();
    return {endpoint ? *endpoint : EndPoint(), theirs ? *theirs : EndPoint()};
  }

  TestServer server_ = make_server();
  Hooked<ClientSession, Client> client_;
};
INSTANTIATE_TEST_SUITE_P(Modes, BusyQueue, every_polling_mode());

TEST_P(BusyQueue, OtherEndPointsAreStillReported) {
  const auto [busy, at_server] = connect();
  ASSERT_TRUE(busy && at_server);
  ASSERT_TRUE(busy.channel().post_write({}, {}, {.id = kBusy}));
  const auto [passing, passing_at_server] = connect();
  ASSERT_TRUE(passing && passing_at_server);
  EXPECT_TRUE(client_.hooks->record.wait_for("established", 2));
  EXPECT_TRUE(passing_at_server.close().ok());
  EXPECT_TRUE(client_.hooks->record.wait_for("disconnected ok"));
  const int done = client_.hooks->done.load();
  while (busy.alive() && client_.hooks->done.load() == done) std::this_thread::yield();
  EXPECT_TRUE(busy.alive());
  client_->stop();
}

/// A server whose endpoints are distributed over three queues, and a client.
class Sharding : public ::testing::Test {
 protected:
  void start(const std::function<void(HcaConfig&)>& change = {}) {
    server_.hooks->configure = [change](HcaConfig& hca, const PeerInfo&) {
      hca.thread_mode = ThreadMode::kThreadPerCompletionQueue;
      hca.polling_mode = PollingMode::kCompletionChannel;
      hca.shared_queue_key = "k";
      hca.shared_queues = 3;
      if (change) change(hca);
      return Status();
    };
    ASSERT_TRUE(server_->start().ok());
    client_ = make_client(*server_);
  }
  void connect(int count) {
    for (int i = 0; i < count; ++i) {
      auto endpoint = client_->connect();
      ASSERT_TRUE(endpoint.has_value()) << endpoint.status().message();
      endpoints_.push_back(std::move(*endpoint));
    }
  }
  /// The number of endpoints of each completion queue of the server.
  std::vector<int> loads() {
    std::map<const CompletionQueue*, int> loads;
    for (const auto& endpoint : server_->endpoints()) ++loads[endpoint.core()->queue().get()];
    std::vector<int> sorted;
    for (const auto& [queue, load] : loads) sorted.push_back(load);
    std::ranges::sort(sorted);
    return sorted;
  }

  TestServer server_ = make_server();
  TestClient client_;
  std::vector<EndPoint> endpoints_;
};

TEST_F(Sharding, SpreadsTheEndPointsEvenly) {
  start();
  connect(1);
  ASSERT_TRUE(server_.hooks->record.wait_for("established", 1));
  EXPECT_EQ(loads(), (std::vector<int>{1}));
  connect(6);
  ASSERT_TRUE(server_.hooks->record.wait_for("established", 7));
  EXPECT_EQ(loads(), (std::vector<int>{2, 2, 3}));
}

TEST_F(Sharding, NewOnesTakeThePlacesOfEndedOnes) {
  start();
  connect(6);
  ASSERT_TRUE(server_.hooks->record.wait_for("established", 6));
  for (int i : {0, 3}) EXPECT_TRUE(endpoints_[static_cast<std::size_t>(i)].close().ok());  // both use the first queue
  ASSERT_TRUE(server_.hooks->record.wait_for("disconnected ok", 2));
  const Deadline deadline = soon();
  while (loads() != std::vector<int>{2, 2} && !deadline.passed()) std::this_thread::yield();
  connect(2);
  ASSERT_TRUE(server_.hooks->record.wait_for("established", 8));
  EXPECT_EQ(loads(), (std::vector<int>{2, 2, 2}));
}

TEST_F(Sharding, OneKeyHasOneNumberOfQueues) {
  int calls = 0;
  start([&](HcaConfig& hca) { hca.shared_queues = ++calls; });
  connect(1);
  const auto second = client_->connect();
  EXPECT_EQ(second.code(), Errc::kPeerRefused);
  EXPECT_THAT(second.error().context, ::testing::HasSubstr("shared_queues"));
}

/// The names of all local threads that start with `prefix`, sorted.
std::vector<std::string> thread_names(const std::string& prefix) {
  std::vector<std::string> names;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::ifstream comm(task.path() / "comm");
    if (std::getline(comm, name) && name.starts_with(prefix)) names.push_back(name);
  }
  std::ranges::sort(names);
  return names;
}

TEST_F(Sharding, ThreadsHaveNamesAndNumbers) {
  start([](HcaConfig& hca) { hca.threads.name = "shard"; });
  connect(7);
  ASSERT_TRUE(server_.hooks->record.wait_for("established", 7));
  EXPECT_EQ(thread_names("shard"), (std::vector<std::string>{"shard-0", "shard-1", "shard-2"}));
  EXPECT_EQ(thread_names("rdma-control").size(), 2U);
}

TEST_F(Sharding, ThreadsRunOnTheirCpus) {
  std::mutex mutex;
  std::set<int> cpus;
  start([](HcaConfig& hca) { hca.threads.cpus = {sched_getcpu()}; });
  server_.hooks->established = [&](const EndPoint&) {
    cpu_set_t mine;
    ASSERT_EQ(sched_getaffinity(0, sizeof(mine), &mine), 0);
    const std::lock_guard lock(mutex);
    cpus.insert(CPU_COUNT(&mine));
  };
  connect(3);
  ASSERT_TRUE(server_.hooks->record.wait_for("established", 3));
  server_->stop();
  EXPECT_EQ(cpus, std::set<int>{1});
}

TEST_F(Sharding, AMissingCpuRefusesThePeerAndLeavesNothing) {
  for (const ThreadMode mode : {ThreadMode::kThreadPerCompletionQueue, ThreadMode::kThreadPerEndPoint}) {
    server_ = make_server();
    start([&](HcaConfig& hca) {
      hca.thread_mode = mode;
      hca.threads.cpus = {CPU_SETSIZE - 1};
    });
    const auto refused = client_->connect();
    EXPECT_EQ(refused.code(), Errc::kPeerRefused);
    EXPECT_THAT(refused.error().context, ::testing::HasSubstr("CPU " + std::to_string(CPU_SETSIZE - 1)));
    EXPECT_TRUE(server_->endpoints().empty());
    client_->stop();
    server_->stop();
  }
}

TEST_F(Sharding, AQueueGrowsWithItsEndPoints) {
  const auto deep = [](HcaConfig& hca) {
    hca.shared_queues = 1;
    hca.channels = {{.name = kDataChannel}};
    hca.channels[0].adapter.send_depth = 1000;
    hca.channels[0].adapter.recv_depth = 1000;
  };
  start(deep);
  client_.hooks->configure = [&](HcaConfig& hca, const PeerInfo&) {
    deep(hca);
    return Status();
  };
  connect(5);
  ASSERT_TRUE(server_.hooks->record.wait_for("established", 5));
  const auto there = server_->endpoints();
  EXPECT_EQ(loads(), (std::vector<int>{5}));
  EXPECT_GE(there.front().core()->queue()->native().depth(), 5 * 2000);
  // Fills all five at the same time to their limit: 1000 receives each.
  const auto buffer = make_buffer(there.front().device());
  for (const auto& endpoint : there) {
    for (int i = 0; i < 1000; ++i) ASSERT_TRUE(endpoint.channel().post_recv(buffer.at(0), {.id = 1}));
  }
  for (const auto& endpoint : endpoints_) {
    for (int i = 0; i < 1000; ++i)
      ASSERT_TRUE(endpoint.channel().post_send({}, {.id = 2, .flags = PostFlags::kUnsignaled}));
  }
  EXPECT_TRUE(server_.hooks->record.wait_for("recv 1", 5000));
  server_->stop();
}

}  // namespace
}  // namespace rdmacomm
