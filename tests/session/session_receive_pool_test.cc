// Receives shared by many peers, in every thread mode: data are correct, receives are given back, and everything ends.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <future>
#include <set>
#include <tuple>

#include "session/session_test_tools.h"
#include "support/polling_modes.h"
#include "support/thread_modes.h"

namespace rdmacomm {
namespace {

using namespace rdmacomm::testing;  // NOLINT(google-build-using-namespace): the tools of this test
using ::testing::HasSubstr;

constexpr std::uint64_t kPeers = 8;
constexpr std::uint64_t kMessages = 40;  // per peer: several times the pool's size
constexpr int kReceives = 16;

void use_pool(HcaConfig& hca) {
  hca.receive_pool_key = "all";
  hca.receive_pool = {.depth = kReceives, .message_bytes = 64};
  hca.channel(kDataChannel).pooled_receives = true;
}

struct Letter {
  std::uint64_t peer = 0;
  std::uint64_t number = 0;
};

/// Sums up the messages of each peer, in order. Threads: any.
class Arrivals {
 public:
  void add(const Letter& message) {
    const std::lock_guard lock(mutex_);
    if (next_[message.peer]++ != message.number) in_order_ = false;
    ++count_;
    changed_.notify_all();
  }
  [[nodiscard]] bool wait_for_all() {
    std::unique_lock lock(mutex_);
    return changed_.wait_until(lock, soon().time_point(), [&] { return count_ == kPeers * kMessages; });
  }
  [[nodiscard]] bool in_order() const { return in_order_; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::array<std::uint64_t, kPeers> next_{};
  std::uint64_t count_ = 0;
  bool in_order_ = true;
};

class PooledServer : public ::testing::TestWithParam<std::tuple<ThreadMode, int, PollingMode>> {
 protected:
  void start(const std::function<void(HcaConfig&)>& change = {}) {
    server_.hooks->configure = [change](HcaConfig& hca, const PeerInfo&) {
      std::tie(hca.thread_mode, hca.shared_queues, hca.polling_mode) = GetParam();
      hca.waiting.yield_every = 1;
      hca.shared_queue_key = "all";
      use_pool(hca);
      if (change) change(hca);
      return Status();
    };
    server_.hooks->received = [this](const EndPoint& endpoint, const Completion& completion) {
      note(endpoint, completion);
    };
    ASSERT_TRUE(server_->start().ok());
    client_ = make_client(*server_);
  }
  ~PooledServer() override {
    client_.reset();
    server_.reset();
  }
  [[nodiscard]] static bool served() { return std::get<0>(GetParam()) != ThreadMode::kApplication; }

  void note(const EndPoint& endpoint, const Completion& completion) {
    const auto bytes = endpoint.receive_pool().message(completion);
    Letter message;
    ASSERT_EQ(bytes.size(), sizeof(message));
    std::memcpy(&message, bytes.data(), sizeof(message));
    arrivals_.add(message);
  }
  /// Sends all messages of one peer, with at most a full send queue outstanding.
  void send_all(const EndPoint& endpoint, std::uint64_t peer) const {
    const auto buffer =
        RDMABuffer::allocate(endpoint.device(), {.block_bytes = sizeof(Letter), .block_count = 8}).value();
    for (std::uint64_t number = 0; number < kMessages; ++number) {
      const BufferSlice slice = buffer.at(number % 8);
      const Letter message{peer, number};
      if (number >= 8) {
        ASSERT_TRUE(wait_one(endpoint).ok());
      }
      std::memcpy(slice.data(), &message, sizeof(message));
      ASSERT_TRUE(endpoint.channel().post_send(slice, {.id = number}));
    }
    for (int left = 0; left < 8; ++left) ASSERT_TRUE(wait_one(endpoint).ok());
  }
  /// For modes in which no session thread polls: takes the messages, and gives the receives back.
  void take_all(const EndPoint& endpoint) {
    for (std::uint64_t number = 0; number < kMessages; ++number) {
      const Completion completion = wait_one(endpoint);
      note(endpoint, completion);
      EXPECT_TRUE(endpoint.receive_pool().give_back(completion));
    }
  }
  /// Waits until all receives are posted again: the last ones are given back after their hooks have returned.
  static void expect_full(const ReceivePool& pool) {
    const Deadline deadline = soon();
    while (pool.posted() < kReceives && !deadline.passed()) std::this_thread::yield();
    EXPECT_EQ(pool.posted(), kReceives);
  }

  Arrivals arrivals_;
  TestServer server_ = make_server();
  TestClient client_;
};

INSTANTIATE_TEST_SUITE_P(Modes, PooledServer,
                         ::testing::Combine(::testing::Values(ThreadMode::kApplication, ThreadMode::kThreadPerChannel,
                                                              ThreadMode::kThreadPerEndPoint,
                                                              ThreadMode::kThreadPerCompletionQueue),
                                            ::testing::Values(1, 3), every_polling_mode()),
                         [](const auto& mode) {
                           return thread_mode_name(std::get<0>(mode.param)) +
                                  (std::get<1>(mode.param) == 3 ? "Sharded" : "") +
                                  instance_name(std::get<2>(mode.param));
                         });

TEST_P(PooledServer, ManyPeersSendMoreThanItHolds) {
  start();
  std::vector<EndPoint> near;
  std::vector<std::future<void>> work;
  for (std::uint64_t peer = 0; peer < kPeers; ++peer) near.push_back(client_->connect().value());
  ASSERT_TRUE(server_.hooks->record.wait_for("established", kPeers));
  ReceivePool pool;
  for (const auto& far : server_->endpoints()) {
    pool = far.receive_pool();
    if (!served()) work.push_back(std::async(std::launch::async, [this, far] { take_all(far); }));
  }
  for (std::uint64_t peer = 0; peer < kPeers; ++peer) {
    work.push_back(std::async(std::launch::async, [&, peer] { send_all(near[peer], peer); }));
  }
  for (auto& each : work) each.get();
  EXPECT_TRUE(arrivals_.wait_for_all());
  EXPECT_TRUE(arrivals_.in_order());
  expect_full(pool);
}

TEST_P(PooledServer, PeersConnectAndLeaveAndTheReceivesStay) {
  start();
  const auto stays = client_->connect().value();
  ASSERT_TRUE(server_.hooks->record.wait_for("established"));
  const ReceivePool pool = server_->endpoints().front().receive_pool();
  for (int round = 1; round <= 3; ++round) {
    const auto leaves = client_->connect().value();
    const auto buffer = make_buffer(leaves.device());
    // The server may not have taken this message when the peer disconnects.
    ASSERT_TRUE(leaves.channel().post_send(buffer.at(0).first(sizeof(Letter)), {.id = 1}));
    ASSERT_TRUE(wait_one(leaves).ok());
    ASSERT_TRUE(leaves.close().ok());
    ASSERT_TRUE(server_.hooks->record.wait_for("disconnected ok", round));
  }
  if (!served()) {
    for (int left = 0; left < 3; ++left) (void)server_->accept(soon()).status();  // not used
    (void)server_->accept(tiny()).status();
  }
  expect_full(pool);
  EXPECT_TRUE(stays.alive());
}

TEST_P(PooledServer, StopsWhileAllIsIdle) {
  start();
  const auto near = client_->connect().value();
  ASSERT_TRUE(server_.hooks->record.wait_for("established"));
  const auto far = server_->endpoints().front();
  server_->stop();
  EXPECT_FALSE(far.alive());
  EXPECT_TRUE(far.close().ok());
  EXPECT_EQ(far.receive_pool().posted(), kReceives);
}

class ReceivePools : public ::testing::Test {
 protected:
  void start(const std::function<Status(HcaConfig&)>& change) {
    server_.hooks->configure = [change](HcaConfig& hca, const PeerInfo&) {
      hca.thread_mode = ThreadMode::kThreadPerCompletionQueue;
      hca.shared_queue_key = "all";
      hca.polling_mode = PollingMode::kCompletionChannel;
      use_pool(hca);
      return change(hca);
    };
    ASSERT_TRUE(server_->start().ok());
    client_ = make_client(*server_);
  }
  TestServer server_ = make_server();
  TestClient client_;
};

TEST_F(ReceivePools, AKeyHasOneSetOfValues) {
  int calls = 0;
  start([&](HcaConfig& hca) {
    hca.receive_pool.message_bytes = static_cast<std::size_t>(++calls) * 64;
    return Status();
  });
  ASSERT_TRUE(client_->connect().has_value());
  const auto second = client_->connect();
  EXPECT_EQ(second.code(), Errc::kPeerRefused);
  EXPECT_THAT(second.error().context, HasSubstr("receive pool 'all' is already in use with other options"));
}

TEST_F(ReceivePools, ACompletionQueueThatHasNoRoomForItIsRefused) {
  start([&](HcaConfig& hca) {
    hca.shared_queue_depth = kReceives - 1;
    return Status();
  });
  const auto refused = client_->connect();
  EXPECT_EQ(refused.code(), Errc::kPeerRefused);
  EXPECT_THAT(refused.error().context, HasSubstr("completion queue"));
}

// Hooks keep receives until the pool reaches its low-water mark; on_receives_low is called, and they stop.
TEST_F(ReceivePools, LowWaterIsReported) {
  struct Server final : Recording {
    void on_recv_done(const EndPoint& endpoint, const Completion& completion) override {
      record.add("message");
      const std::lock_guard lock(mutex);
      if (!keeps) return;
      endpoint.receive_pool().keep(completion);
      kept.push_back(completion);
    }
    void on_receives_low(const ReceivePool& pool) override {
      const std::lock_guard lock(mutex);
      keeps = false;
      for (const Completion& each : kept) EXPECT_TRUE(pool.give_back(each));
      kept.clear();
      record.add("low");
    }
    std::mutex mutex;
    bool keeps = true;
    std::vector<Completion> kept;
  };
  Hooked<ServerSession, Server> server(local_options());
  server.hooks->configure = [](HcaConfig& hca, const PeerInfo&) {
    hca.thread_mode = ThreadMode::kThreadPerEndPoint;
    hca.polling_mode = PollingMode::kCompletionChannel;
    use_pool(hca);
    hca.receive_pool.low_water = kReceives / 2;
    return Status();
  };
  ASSERT_TRUE(server->start().ok());
  client_ = make_client(*server);
  const auto near = client_->connect().value();
  const auto buffer = make_buffer(near.device());
  ASSERT_TRUE(server.hooks->record.wait_for("established"));
  const ReceivePool pool = server->endpoints().front().receive_pool();
  for (int round = 1; round <= 3; ++round) {
    // Twice the number of receives: without on_receives_low() the last SEND would wait forever.
    for (std::uint64_t number = 0; number < 2 * kReceives; ++number) {
      ASSERT_TRUE(near.channel().post_send(buffer.at(0), {.id = number}));
      ASSERT_TRUE(wait_one(near).ok());
    }
    ASSERT_TRUE(server.hooks->record.wait_for("low", round));
    EXPECT_GE(pool.times_low(), round);
    // Wait also for messages that arrived after the hook was called: the hook is not called again for receives kept
    // then.
    ASSERT_TRUE(server.hooks->record.wait_for("message", round * 2 * kReceives));
    const Deadline deadline = soon();
    while (pool.posted() < kReceives && !deadline.passed()) std::this_thread::yield();
    const std::lock_guard lock(server.hooks->mutex);
    server.hooks->keeps = true;
  }
  client_->stop();
  server->stop();
}

}  // namespace
}  // namespace rdmacomm
