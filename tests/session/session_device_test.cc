// An asynchronous event of a device ends the objects that it concerns, and no others.
#include <gmock/gmock.h>

#include <future>
#include <vector>

#include "connector/connector.h"
#include "session/session_test_tools.h"
#include "support/injected_events.h"
#include "support/thread_modes.h"

namespace rdmacomm {
namespace {

using namespace rdmacomm::testing;  // NOLINT(google-build-using-namespace): the tools of this test
using ::testing::AllOf;
using ::testing::HasSubstr;

/// A server on a device whose events are injected by the test, and a client on a device of its own.
class SessionDeviceTest : public ::testing::TestWithParam<ThreadMode> {
 protected:
  SessionDeviceTest() {
    server_.hooks->configure = [](HcaConfig& hca, const PeerInfo&) {
      hca.thread_mode = GetParam();
      if (hca.thread_mode == ThreadMode::kThreadPerCompletionQueue) {
        hca.shared_queue_key = "all";
        hca.shared_queue_depth = 4096;
      }
      return Status();
    };
    const Status started = server_->start();
    EXPECT_TRUE(started.ok()) << started.message();
    client_ = TestClient(options_on(InjectedEvents::open(), server_->port()));
  }
  static SessionOptions options_on(RDMADevice device, std::uint16_t port = 0) {
    SessionOptions options = local_options(port);
    options.shared_device = std::move(device);
    options.connector = ConnectorKind::kTcp;
    return options;
  }

  EndPoint connect() {
    auto endpoint = client_->connect();
    EXPECT_TRUE(endpoint.has_value()) << endpoint.status().message();
    return endpoint ? *endpoint : EndPoint();
  }
  EndPoint accept() {
    auto endpoint = server_->accept(soon());
    EXPECT_TRUE(endpoint.has_value()) << endpoint.status().message();
    return endpoint ? *endpoint : EndPoint();
  }
  void raise(ibv_event_type type) { injected_.raise(*device_.core(), type); }
  /// Waits until this number of events is acknowledged.
  void expect_acknowledged(unsigned events) {
    const Deadline deadline = soon();
    while (injected_.acknowledged() < events && !deadline.passed()) std::this_thread::yield();
    EXPECT_EQ(injected_.acknowledged(), events);
  }
  static ibv_async_event event_at(ibv_event_type type, const RDMAChannel& channel) {
    ibv_async_event event{};
    event.event_type = type;
    event.element.qp = channel.native_handle();
    if (type == IBV_EVENT_CQ_ERR) event.element.cq = channel.native_handle()->send_cq;
    return event;
  }

  InjectedEvents injected_;
  const RDMADevice device_ = InjectedEvents::open();
  TestServer server_ = make_server(options_on(device_));
  TestClient client_;
};

INSTANTIATE_TEST_SUITE_P(Modes, SessionDeviceTest,
                         ::testing::Values(ThreadMode::kApplication, ThreadMode::kThreadPerChannel,
                                           ThreadMode::kThreadPerEndPoint, ThreadMode::kThreadPerCompletionQueue),
                         [](const auto& mode) { return thread_mode_name(mode.param); });

TEST_P(SessionDeviceTest, ALostDeviceEndsAllItsEndpoints) {
  const auto first = connect();
  const auto second = connect();
  ASSERT_TRUE(first && second);
  const auto there = accept();
  ASSERT_TRUE(there && accept());
  raise(IBV_EVENT_DEVICE_FATAL);
  ASSERT_TRUE(server_.hooks->record.wait_for("disconnected RDMA device lost", 2));
  EXPECT_EQ(there.status().code(), Errc::kDeviceLost);
  EXPECT_THAT(there.status().message(), AllOf(HasSubstr(there.peer()), HasSubstr("RDMA device soft0 was removed")));
  // Waits outside of the channels also end with the cause, and the peer receives it.
  EXPECT_EQ(there.receive_message(soon()).code(), Errc::kDeviceLost);
  ASSERT_TRUE(client_.hooks->record.wait_for("disconnected refused by the peer", 2));
  EXPECT_THAT(first.status().message(), HasSubstr("RDMA device soft0 was removed"));
  EXPECT_TRUE(there.close().ok());
  EXPECT_EQ(injected_.acknowledged(), 1U);
}

TEST_P(SessionDeviceTest, OnDisconnectedWaitsForOnEstablished) {
  server_.hooks->established = [this](const EndPoint& endpoint) {
    raise(IBV_EVENT_DEVICE_FATAL);
    const Deadline deadline = soon();
    while (endpoint.alive() && !deadline.passed()) std::this_thread::yield();
    EXPECT_FALSE(endpoint.alive());
    // Longer than one heartbeat period: the heartbeat checks all endpoints.
    const Deadline next = Deadline::after(Connector::kHeartbeatPeriod * 3 / 2);
    EXPECT_FALSE(server_.hooks->record.wait_until(next, "disconnected RDMA device lost"));
  };
  (void)client_->connect();
  EXPECT_TRUE(server_.hooks->record.wait_for("disconnected RDMA device lost"));
}

TEST_P(SessionDeviceTest, ConnectingFailsOnALostDevice) {
  ASSERT_TRUE(connect());
  ASSERT_TRUE(accept());
  raise(IBV_EVENT_DEVICE_FATAL);
  ASSERT_TRUE(server_.hooks->record.wait_for("disconnected RDMA device lost"));
  const auto refused = client_->connect();
  EXPECT_EQ(refused.code(), Errc::kPeerRefused);
  EXPECT_THAT(refused.status().message(), HasSubstr("RDMA device soft0 was removed"));
  ASSERT_TRUE(server_.hooks->record.wait_for("connect_failed RDMA device lost"));
}

TEST_P(SessionDeviceTest, AFailedQueuePairEndsItsEndpointOnly) {
  int failed = 0;
  for (const ibv_event_type type : {IBV_EVENT_QP_FATAL, IBV_EVENT_QP_REQ_ERR, IBV_EVENT_QP_ACCESS_ERR}) {
    const auto failing = connect();
    const auto there = accept();
    const auto other = connect();
    const auto other_there = accept();
    ASSERT_TRUE(failing && there && other && other_there);
    injected_.raise(*device_.core(), event_at(type, there.channel()));
    ASSERT_TRUE(server_.hooks->record.wait_for("disconnected local queue pair operation error", ++failed));
    EXPECT_THAT(there.status().message(), HasSubstr("queue pair 0x")) << ibv_event_type_str(type);
    EXPECT_TRUE(other_there.alive());
    EXPECT_TRUE(other.alive());
    EXPECT_TRUE(other.close().ok());
  }
}

TEST_P(SessionDeviceTest, AFailedCompletionQueueEndsItsEndpoints) {
  const auto failing = connect();
  const auto there = accept();
  const auto other = connect();
  const auto other_there = accept();
  ASSERT_TRUE(failing && there && other && other_there);
  injected_.raise(*device_.core(), event_at(IBV_EVENT_CQ_ERR, there.channel()));
  ASSERT_TRUE(server_.hooks->record.wait_for("disconnected completion failed"));
  const bool shared = GetParam() == ThreadMode::kThreadPerCompletionQueue;
  ASSERT_TRUE(!shared || server_.hooks->record.wait_for("disconnected completion failed", 2));
  EXPECT_EQ(other_there.alive(), !shared);
}

TEST_P(SessionDeviceTest, APortThatLosesItsLinkEndsNothing) {
  const auto endpoint = connect();
  const auto there = accept();
  ASSERT_TRUE(endpoint && there);
  raise(IBV_EVENT_PORT_ERR);
  raise(IBV_EVENT_PORT_ACTIVE);
  raise(IBV_EVENT_GID_CHANGE);
  expect_acknowledged(3);
  EXPECT_TRUE(there.alive());
  auto received = std::async(std::launch::async, [&] { return endpoint.receive_message(soon()).code(); });
  EXPECT_TRUE(there.send_message({}, soon()).ok());
  EXPECT_FALSE(received.get());
}

TEST_P(SessionDeviceTest, AnEndedEndpointKeepsItsReason) {
  const auto endpoint = connect();
  const auto there = accept();
  ASSERT_TRUE(endpoint && there);
  EXPECT_TRUE(endpoint.close().ok());
  ASSERT_TRUE(server_.hooks->record.wait_for("disconnected ok"));
  there.abort(make_error(Errc::kDeviceLost, "too late"));
  EXPECT_EQ(there.status().code(), Errc::kPeerClosed);
}

/// Both sessions share one context. Either control thread may take the event; both sessions must receive it. A session
/// may first receive the reason from its peer, if the peer was informed first.
TEST_P(SessionDeviceTest, SessionsThatShareADeviceGetTheSameEvents) {
  const auto client = TestClient(options_on(device_, server_->port()));
  const auto here = client->connect();
  ASSERT_TRUE(here) << here.status().message();
  const auto there = accept();
  ASSERT_TRUE(there);
  raise(IBV_EVENT_DEVICE_FATAL);
  const Deadline deadline = soon();
  for (const auto& endpoint : {*here, there}) {
    while (endpoint.alive() && !deadline.passed()) std::this_thread::yield();
    EXPECT_THAT(endpoint.status().message(), HasSubstr("RDMA device soft0 was removed"));
  }
  EXPECT_EQ(injected_.acknowledged(), 1U);
}

/// The control thread finds the endpoint of an event while other endpoints end.
TEST_P(SessionDeviceTest, AnEventEndsItsEndpointWhileOthersEnd) {
  constexpr unsigned kRounds = 20;
  for (unsigned round = 1; round <= kRounds; ++round) {
    const auto failing = connect();
    const auto there = accept();
    ASSERT_TRUE(failing && there);
    std::vector<EndPoint> others;
    for (int i = 0; i < 3; ++i) {
      others.push_back(connect());
      others.push_back(accept());
    }
    auto going = std::async(std::launch::async, [&] {
      for (EndPoint& each : others) {
        EXPECT_TRUE(each.close().ok());
        each = EndPoint();
      }
    });
    injected_.raise(*device_.core(), event_at(IBV_EVENT_QP_FATAL, there.channel()));
    ASSERT_TRUE(
        server_.hooks->record.wait_for("disconnected local queue pair operation error", static_cast<int>(round)));
    going.get();
  }
  expect_acknowledged(kRounds);
}

/// soft0's own events, which delay the destruction of a queue pair until they are acknowledged, while endpoints connect
/// and end.
TEST_P(SessionDeviceTest, AnInvalidRequestEndsTheEndpointAndDelaysNothing) {
  for (int i = 0; i < 20; ++i) {
    const auto endpoint = connect();
    const auto there = accept();
    ASSERT_TRUE(endpoint && there);
    const auto local = make_buffer(endpoint.device());
    const auto remote = make_buffer(there.device(), RemoteAccess::kWrite);
    RemoteRegion wrong = remote.remote_region();
    wrong.rkey ^= 0xff00;
    ASSERT_TRUE(endpoint.channel().post_write(local.at(0), wrong, {.id = 1}));
    EXPECT_EQ(wait_one(endpoint).error, Errc::kRemoteAccess);
    if (i % 2 == 0) {
      EXPECT_TRUE(there.close().ok());
    } else {
      ASSERT_TRUE(server_.hooks->record.wait_for("disconnected local queue pair operation error", (i + 1) / 2));
    }
    EXPECT_TRUE(endpoint.close().ok());
  }
}

}  // namespace
}  // namespace rdmacomm
