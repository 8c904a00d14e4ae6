// SessionOptions::queues_of: sessions that share completion queues and their threads.
#include <gmock/gmock.h>

#include <future>
#include <memory>

#include "endpoint/endpoint_core.h"
#include "rdmacomm/session.h"
#include "session/session_test_tools.h"

namespace rdmacomm {
namespace {

using namespace rdmacomm::testing;  // NOLINT(google-build-using-namespace): the tools of this test

Status on_one_queue(HcaConfig& hca, const PeerInfo& /*peer*/) {
  hca.thread_mode = ThreadMode::kThreadPerCompletionQueue;
  hca.polling_mode = PollingMode::kCompletionChannel;
  hca.shared_queue_key = "all";
  return {};
}

/// Two sessions: the host is a server; the guest is a client of another server and uses the host's queues.
class QueuesOf : public ::testing::Test {
 protected:
  QueuesOf() {
    auto device = open_device({.name = "soft0"}, {});
    EXPECT_TRUE(device.has_value()) << device.status().message();
    device_ = std::move(*device);
    buffer_ = make_buffer(device_, RemoteAccess::kWrite);
    other_.hooks->configure = on_one_queue;
    other_.hooks->connecting = [this](const EndPoint& endpoint) { return post_receive(endpoint); };
    EXPECT_TRUE(other_->start().ok());
    host_ = make_server(on_device());
    host_.hooks->configure = on_one_queue;
    host_.hooks->connecting = [this](const EndPoint& endpoint) { return post_receive(endpoint); };
    EXPECT_TRUE(host_->start().ok());
    guest_ = make_guest();
  }
  ~QueuesOf() override {
    client_->stop();
    guest_->stop();
    host_->stop();
    other_->stop();
  }

  SessionOptions on_device() const {
    SessionOptions options = local_options();
    options.shared_device = device_;
    return options;
  }
  TestClient make_guest() {
    SessionOptions options = on_device();
    options.address.port = other_->port();
    options.queues_of = &static_cast<const ServerSession&>(host_);
    auto guest = TestClient(options);
    guest.hooks->configure = on_one_queue;
    return guest;
  }
  /// Receives into memory that no test checks.
  Status post_receive(const EndPoint& endpoint) {
    return endpoint.channel().post_recv(other_buffer(endpoint).at(0), {.id = 7});
  }
  const RDMABuffer& other_buffer(const EndPoint& endpoint) {
    if (endpoint.device() == device_) return buffer_;
    const std::lock_guard lock(mutex_);
    if (!other_buffer_) other_buffer_ = make_buffer(endpoint.device());
    return other_buffer_;
  }
  EndPoint connect(const TestClient& client) {
    auto endpoint = client->connect();
    EXPECT_TRUE(endpoint.has_value()) << endpoint.status().message();
    return endpoint ? *endpoint : EndPoint();
  }
  /// Connects a client to the host. When it returns, the host has called on_established.
  EndPoint connect_to_host() {
    client_ = make_client(*host_);
    auto endpoint = connect(*client_);
    EXPECT_TRUE(host_.hooks->record.wait_for("established"));
    return endpoint;
  }

  RDMADevice device_;
  RDMABuffer buffer_;
  TestServer other_ = make_server();
  std::mutex mutex_;
  RDMABuffer other_buffer_;
  TestServer host_;
  TestClient guest_;
  TestClient client_ = TestClient(local_options());
};

TEST_F(QueuesOf, PutsEndPointsOfBothOnOneQueueAndCallsTheHooksOfEach) {
  const auto of_guest = connect(*guest_);
  const auto to_host = connect_to_host();
  ASSERT_TRUE(of_guest && to_host);
  ASSERT_EQ(host_->endpoints().size(), 1U);
  EXPECT_EQ(of_guest.core()->queue(), host_->endpoints().front().core()->queue());
  ASSERT_TRUE(of_guest.channel().post_send(buffer_.at(1), {.id = 1}));
  EXPECT_TRUE(guest_.hooks->record.wait_for("send 1"));
  const auto letter = make_buffer(to_host.device());
  ASSERT_TRUE(to_host.channel().post_send(letter.at(0), {.id = 2}));
  EXPECT_TRUE(host_.hooks->record.wait_for("recv 7"));
  EXPECT_EQ(guest_.hooks->record.count("recv 7"), 0);
  EXPECT_EQ(host_.hooks->record.count("send 1"), 0);
  EXPECT_TRUE(to_host.close().ok());
}

TEST_F(QueuesOf, AGuestThatStopsDoesNotAffectItsHost) {
  const auto of_guest = connect(*guest_);
  const auto to_host = connect_to_host();
  ASSERT_TRUE(of_guest && to_host);
  guest_->stop();
  EXPECT_EQ(guest_.hooks->record.count("disconnected ok"), 1);  // last hook: before stop() returned
  const auto letter = make_buffer(to_host.device());
  ASSERT_TRUE(to_host.channel().post_send(letter.at(0), {.id = 2}));
  EXPECT_TRUE(host_.hooks->record.wait_for("recv 7"));
  EXPECT_TRUE(to_host.close().ok());
}

TEST_F(QueuesOf, AHostThatStopsFirstEndsTheEndPointsOnItsQueues) {
  const auto of_guest = connect(*guest_);
  ASSERT_TRUE(of_guest);
  host_->stop();
  EXPECT_EQ(guest_.hooks->record.count("disconnected ok"), 1);
  EXPECT_FALSE(of_guest.alive());
  const auto late = guest_->connect();
  EXPECT_EQ(late.code(), Errc::kStopped);
  guest_->stop();
}

TEST_F(QueuesOf, AGuestMayStopItselfInAHook) {
  other_.hooks->received = [this](const EndPoint& endpoint, const Completion&) {
    EXPECT_TRUE(endpoint.channel().post_send(other_buffer(endpoint).at(0), {.id = 1}));  // an answer
  };
  guest_.hooks->connecting = [this](const EndPoint& endpoint) { return post_receive(endpoint); };
  guest_.hooks->received = [this](const EndPoint&, const Completion&) { guest_->stop(); };
  const auto of_guest = connect(*guest_);
  ASSERT_TRUE(of_guest);
  ASSERT_TRUE(of_guest.channel().post_send(buffer_.at(1), {.id = 1}));
  EXPECT_TRUE(guest_.hooks->record.wait_for("disconnected ok"));
  guest_->stop();
}

TEST_F(QueuesOf, ManyGuestsComeAndGo) {
  constexpr int kGuests = 8;
  for (int round = 0; round < 3; ++round) {
    std::vector<TestClient> guests;
    std::vector<std::future<bool>> connected;
    for (int i = 0; i < kGuests; ++i) guests.push_back(make_guest());
    for (auto& guest : guests) {
      connected.push_back(std::async(std::launch::async, [&guest] {
        const auto endpoint = guest->connect();
        return endpoint && (*endpoint).channel().post_send({}, {.id = 3});
      }));
    }
    for (auto& each : connected) EXPECT_TRUE(each.get());
    for (auto& guest : guests) {
      guest->stop();
      EXPECT_EQ(guest.hooks->record.count("disconnected ok"), 1);
      EXPECT_EQ(guest.hooks->record.count("send 3") + guest.hooks->record.count("failed flushed"), 1);
    }
  }
}

TEST_F(QueuesOf, AHostMayBeMovedBeforeItsGuestStarts) {
  std::unique_ptr<ServerSession> moved;  // declared before the guest, so it outlives it
  auto host = std::make_unique<ServerSession>(on_device(), SessionFunctions{});
  ASSERT_TRUE(host->start().ok());
  SessionOptions options = on_device();
  options.address.port = other_->port();
  options.queues_of = host.get();
  const ClientSession guest(options, {.lazy_config_hca = on_one_queue});
  moved = std::make_unique<ServerSession>(std::move(*host));
  host.reset();
  const auto endpoint = guest.connect();
  EXPECT_TRUE(endpoint) << endpoint.status().message();
  guest.stop();
}

TEST_F(QueuesOf, AGuestCannotBeAHost) {
  ASSERT_TRUE(connect(*guest_));
  SessionOptions options = on_device();
  options.address.port = other_->port();
  options.queues_of = &static_cast<const ClientSession&>(guest_);
  const auto refused = ClientSession(options, {.lazy_config_hca = on_one_queue}).connect();
  EXPECT_EQ(refused.code(), Errc::kInvalidArgument);
  EXPECT_THAT(refused.status().message(), ::testing::HasSubstr("itself uses the queues of another session"));
}

TEST_F(QueuesOf, AHostThatWasStoppedBeforeItRanIsRefused) {
  SessionOptions taken = on_device();
  taken.address.port = other_->port();
  const ServerSession host(taken, SessionFunctions{});
  EXPECT_FALSE(host.start()) << "the port is in use";
  host.stop();
  SessionOptions options = on_device();
  options.address.port = other_->port();
  options.queues_of = &host;
  const ClientSession guest(options, {.lazy_config_hca = on_one_queue});
  EXPECT_EQ(guest.connect().code(), Errc::kStopped);
}

TEST_F(QueuesOf, AHostThatIsNotStartedOrOnAnotherDeviceIsRefused) {
  const auto not_started = make_server(on_device());
  SessionOptions options = on_device();
  options.queues_of = &static_cast<const ServerSession&>(not_started);
  const auto refused = TestClient(options)->connect();
  EXPECT_EQ(refused.code(), Errc::kInvalidArgument);
  EXPECT_THAT(refused.error().context, ::testing::HasSubstr("queues_of"));
  options.queues_of = &static_cast<const ServerSession&>(other_);
  EXPECT_EQ(TestClient(options)->connect().code(), Errc::kInvalidArgument);
}

}  // namespace
}  // namespace rdmacomm
