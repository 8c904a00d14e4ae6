// Peers connect, disconnect, die and connect again, while others continue.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <future>
#include <tuple>

#include "endpoint/endpoint_core.h"
#include "session/session_test_tools.h"
#include "support/polling_modes.h"
#include "support/thread_modes.h"

namespace rdmacomm {
namespace {

using namespace rdmacomm::testing;  // NOLINT(google-build-using-namespace): the tools of this test

/// How a peer ends its connection.
enum class Way { kClose, kStopSession, kVanish };

/// A server in one of the modes. Each peer writes numbers into memory that the server publishes, at its own place.
class Membership : public ::testing::TestWithParam<std::tuple<ThreadMode, PollingMode>> {
 protected:
  static constexpr std::size_t kPlaces = 8;

  Membership() { start_server(); }
  ~Membership() override { stop_server(); }

  void start_server(std::uint16_t port = 0) {
    device_ = RDMADevice::open({.name = "soft0"}).value();
    memory_ = RDMABuffer::allocate(device_, {.name = "places",
                                             .block_bytes = sizeof(std::uint64_t),
                                             .block_count = kPlaces,
                                             .remote_access = RemoteAccess::kWrite})
                  .value();
    SessionOptions options = local_options(port);
    options.shared_device = device_;
    server_ = make_server(std::move(options));
    server_.hooks->configure = [this](HcaConfig& hca, const PeerInfo&) {
      configure(hca);
      hca.publish(memory_);
      return Status();
    };
    const Status started = server_->start();
    ASSERT_TRUE(started.ok()) << started.message();
  }
  void stop_server() {
    server_->stop();
    memory_ = {};
  }

  static void configure(HcaConfig& hca) {
    std::tie(hca.thread_mode, hca.polling_mode) = GetParam();
    hca.waiting.yield_every = 1;
    hca.shared_queue_key = "all";
    hca.channels = {{.name = kDataChannel, .adapter = {.send_depth = 16, .recv_depth = 16}}};
  }
  [[nodiscard]] static bool served() { return std::get<0>(GetParam()) != ThreadMode::kApplication; }

  TestClient make_peer() {
    auto client = make_client(*server_);
    client.hooks->configure = [](HcaConfig& hca, const PeerInfo&) {
      configure(hca);
      return Status();
    };
    return client;
  }
  /// Writes 1, 2, ... `count` at one place, one after the other.
  static void write_numbers(const TestClient& client, const EndPoint& endpoint, std::size_t place,
                            std::uint64_t count) {
    const auto buffer = make_buffer(endpoint.device());
    const RemoteRegion all = *endpoint.remote_region("places");
    const RemoteRegion target{all.address + place * sizeof(std::uint64_t), sizeof(std::uint64_t), all.rkey};
    const int before = client.hooks->record.count("write 1");
    for (std::uint64_t number = 1; number <= count; ++number) {
      std::memcpy(buffer.data(), &number, sizeof(number));
      ASSERT_TRUE(endpoint.channel().post_write(buffer.at(0).first(sizeof(number)), target, {.id = 1}));
      if (served()) {
        ASSERT_TRUE(client.hooks->record.wait_for("write 1", before + static_cast<int>(number)));
      } else {
        ASSERT_TRUE(wait_one(endpoint).ok());
      }
    }
  }
  [[nodiscard]] std::uint64_t number_at(std::size_t place) const {
    std::uint64_t number = 0;
    std::memcpy(&number, memory_.at(place).data(), sizeof(number));
    return number;
  }
  /// Waits until the server has `count` endpoints.
  void expect_members(std::size_t count) {
    const Deadline deadline = soon();
    while (server_->endpoints().size() != count && !deadline.passed()) std::this_thread::yield();
    EXPECT_EQ(server_->endpoints().size(), count);
  }

  RDMADevice device_;
  RDMABuffer memory_;
  TestServer server_;
};

INSTANTIATE_TEST_SUITE_P(Modes, Membership,
                         ::testing::Combine(::testing::Values(ThreadMode::kApplication, ThreadMode::kThreadPerChannel,
                                                              ThreadMode::kThreadPerEndPoint,
                                                              ThreadMode::kThreadPerCompletionQueue),
                                            ::testing::Values(PollingMode::kBusyPoll, PollingMode::kEpoll)),
                         [](const auto& mode) {
                           return thread_mode_name(std::get<0>(mode.param)) + instance_name(std::get<1>(mode.param));
                         });

TEST_P(Membership, OthersContinueWhilePeersJoinLeaveDieAndReturn) {
  constexpr std::size_t kSteady = 3;
  constexpr std::uint64_t kNumbers = 300;
  std::vector<TestClient> steady;
  steady.reserve(kSteady);  // threads hold pointers to the elements
  std::vector<std::future<void>> work;
  for (std::size_t place = 0; place < kSteady; ++place) {
    steady.push_back(make_peer());
    const auto endpoint = steady.back()->connect().value();
    work.push_back(std::async(std::launch::async, [client = &steady.back(), endpoint, place] {
      write_numbers(*client, endpoint, place, kNumbers);
    }));
  }
  TestClient coming = make_peer();
  std::uint64_t round = 0;
  for (int again = 0; again < 4; ++again) {
    for (const Way way : {Way::kClose, Way::kVanish, Way::kStopSession}) {
      const auto endpoint = coming->connect().value();
      write_numbers(*coming, endpoint, kSteady, ++round);
      EXPECT_EQ(number_at(kSteady), round) << "it is the same peer as before, at its old place";
      switch (way) {
        case Way::kClose: EXPECT_TRUE(endpoint.close().ok()); break;
        case Way::kVanish: endpoint.core()->connector().shutdown(); break;  // like the kernel for a process that dies
        case Way::kStopSession: coming = make_peer(); break;
      }
    }
  }
  for (auto& each : work) each.get();
  for (std::size_t place = 0; place < kSteady; ++place) EXPECT_EQ(number_at(place), kNumbers);
  expect_members(kSteady);
  EXPECT_TRUE(server_.hooks->record.wait_for("disconnected ok", 8));
  EXPECT_TRUE(server_.hooks->record.wait_for("disconnected peer lost", 4));
  EXPECT_EQ(server_.hooks->record.count("established"), static_cast<int>(kSteady + round));
  for (const auto& each : steady) EXPECT_EQ(each.hooks->record.count("disconnected ok"), 0);
}

TEST_P(Membership, AServerRestartsAtItsPort) {
  const std::uint16_t port = server_->port();
  const auto other = make_server();
  other.hooks->configure = [](HcaConfig& hca, const PeerInfo&) {
    configure(hca);
    return Status();
  };
  ASSERT_TRUE(other->start().ok());
  const auto client = make_peer();
  const auto stays = client->connect({"127.0.0.1", other->port()}).value();
  const auto first = client->connect().value();
  write_numbers(*client, first, 0, 5);
  ASSERT_TRUE(server_.hooks->record.wait_for("established")) << "who is being set up when it stops is refused";
  stop_server();
  ASSERT_TRUE(client.hooks->record.wait_for("disconnected ok"));
  EXPECT_EQ(first.status().code(), Errc::kPeerClosed);
  auto coming = std::async(std::launch::async, [&] { return client->connect(); });  // before the server runs
  start_server(port);
  const auto second = coming.get().value();
  write_numbers(*client, second, 0, 7);
  EXPECT_EQ(number_at(0), 7U);
  EXPECT_TRUE(stays.alive());
  client->stop();
  other->stop();
}

TEST_P(Membership, PeersThatLeftLeaveNothing) {
  {
    const auto warm = make_peer();  // so that one-time allocations are made before the count
    ASSERT_TRUE(warm->connect().has_value());
  }
  expect_members(0);
  const auto steady = make_peer();
  const auto endpoint = steady->connect().value();
  expect_members(1);
  ASSERT_TRUE(server_.hooks->record.wait_for("disconnected ok"));
  const std::size_t descriptors = open_descriptors();
  const std::size_t threads = running_threads();
  for (int round = 0; round < 5; ++round) {
    std::vector<TestClient> peers;
    for (int i = 0; i < 4; ++i) {
      peers.push_back(make_peer());
      ASSERT_TRUE(peers.back()->connect().has_value());
    }
    expect_members(5);
  }
  expect_members(1);
  if (!served()) {
    // No call of accept() has taken these endpoints: the server keeps ended ones until accept() returns them.
    while (server_->accept(tiny()).has_value()) continue;
  }
  expect_back_to(descriptors, threads);
  write_numbers(*steady, endpoint, 0, 3);
  EXPECT_EQ(number_at(0), 3U);
}

}  // namespace
}  // namespace rdmacomm
