// Connecting by rdma_cm on a host without rdma_cm, and the choice of the connector. Tests on the kernel's devices cover
// hosts with rdma_cm (docs/testing.md).
#include "connector/cm/cm_connector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rdma/rdma_cma.h>

#include <future>

#include "connector/cm/cm_listener.h"
#include "connector/cm/cm_requests.h"
#include "connector/tcp_pair.h"
#include "rdmacomm/connector.h"

namespace rdmacomm {
namespace {

using ::testing::HasSubstr;

bool has_rdma_cm() {
  rdma_event_channel* channel = rdma_create_event_channel();
  if (channel != nullptr) rdma_destroy_event_channel(channel);
  return channel != nullptr;
}

TEST(CmConnector, WithoutRdmaCmTheErrorNamesTheRemedy) {
  if (has_rdma_cm()) GTEST_SKIP() << "this machine has rdma_cm";
  const auto connected = CmConnector::connect({"127.0.0.1", 2020});
  EXPECT_EQ(connected.code(), Errc::kNotSupported);
  EXPECT_THAT(connected.error().context, HasSubstr("rdma_ucm"));
  const auto listening = CmListener::listen({"", 0});
  EXPECT_EQ(listening.code(), Errc::kNotSupported);
  EXPECT_THAT(listening.error().context, HasSubstr("ConnectorKind::kTcp"));
}

TEST(CmListener, AForeignAddressIsNotReportedAsInUse) {
  if (!has_rdma_cm()) GTEST_SKIP() << "this machine has no rdma_cm";
  const auto listening = CmListener::listen({"192.0.2.1", 2020});
  EXPECT_EQ(listening.code(), std::errc::address_not_available) << listening.status().message();
  EXPECT_THAT(listening.error().context, HasSubstr("this host does not have that address"));
}

TEST(CmConnector, OptionsOutsideTheirRangesAreRefused) {
  EXPECT_EQ(CmConnector::connect({"127.0.0.1", 0}).code(), Errc::kInvalidArgument);
  TcpOptions options;
  options.connect_timeout = std::chrono::milliseconds(0);
  EXPECT_EQ(CmConnector::connect({"127.0.0.1", 2020}, options).code(), Errc::kInvalidArgument);
  EXPECT_EQ(CmListener::listen({"127.0.0.1", 0}, options).code(), Errc::kInvalidArgument);
}

TEST(CmRequests, AreFoundByTheirTokenAndEndWithTheirConnector) {
  CmRegistry registry;
  const auto entered = registry.enter();
  ASSERT_TRUE(entered);
  EXPECT_EQ(registry.find(entered->first), entered->second);
  EXPECT_EQ(registry.find(entered->first + 1), nullptr);
  EXPECT_EQ(entered->second->take(1, {.deadline = Deadline::after({})}).code(), Errc::kTimeout);
  entered->second->close();
  EXPECT_EQ(entered->second->take(1, {.deadline = Deadline::never()}).code(), Errc::kStopped);
  EXPECT_FALSE(entered->second->has_room(1));
  registry.forget(entered->first);
  EXPECT_EQ(registry.find(entered->first), nullptr);
}

TEST(CmRequests, AreLimitedAndHaveUniqueNumbers) {
  const auto entered = CmRegistry().enter();
  ASSERT_TRUE(entered);
  CmRequests& requests = *entered->second;
  for (std::uint32_t qpn = 0; qpn < CmRequests::kMax; ++qpn) {
    ASSERT_TRUE(requests.has_room(qpn));
    requests.add(qpn, nullptr);
    EXPECT_FALSE(requests.has_room(qpn)) << "one of that number waits already";
  }
  EXPECT_FALSE(requests.has_room(CmRequests::kMax));
  ASSERT_TRUE(requests.take(7, {.deadline = Deadline::after({})}).has_value());
  EXPECT_TRUE(requests.has_room(CmRequests::kMax));
}

TEST(CmRequests, AWaitForOneEndsWithItsConnection) {
  const auto entered = CmRegistry().enter();
  ASSERT_TRUE(entered);
  testing::TcpPair pair;
  auto taken = std::async(std::launch::async, [&, requests = entered->second] {
    return requests->take(1, {.deadline = testing::soon(), .connection = pair.server.get()}).status();
  });
  pair.client.reset();
  const Status ended = taken.get();
  EXPECT_EQ(ended.code(), Errc::kPeerLost) << ended.message();
  EXPECT_THAT(ended.message(), HasSubstr("closed the connection without notice"));
}

TEST(CmRequests, AWaitForOneEndsWhenItArrivesOrIsCancelled) {
  const auto entered = CmRegistry().enter();
  ASSERT_TRUE(entered);
  const auto stop = WakeEvent::create();
  ASSERT_TRUE(stop);
  const auto take = [requests = entered->second, fd = stop->fd()](std::uint32_t qpn) {
    return requests->take(qpn, {.deadline = testing::soon(), .cancel_fd = fd}).code();
  };
  auto first = std::async(std::launch::async, take, 1);
  entered->second->add(2, nullptr);
  entered->second->add(1, nullptr);
  EXPECT_FALSE(first.get());
  EXPECT_FALSE(take(2));
  auto third = std::async(std::launch::async, take, 3);
  stop->signal();
  EXPECT_EQ(third.get(), Errc::kStopped);
}

TEST(ConnectorKind, IsParsedFromItsText) {
  for (const ConnectorKind kind : {ConnectorKind::kAuto, ConnectorKind::kTcp, ConnectorKind::kCm}) {
    EXPECT_EQ(*connector_kind_from(to_text(kind)), kind);
  }
  EXPECT_EQ(connector_kind_from("rdma").code(), Errc::kInvalidArgument);
}

}  // namespace
}  // namespace rdmacomm
