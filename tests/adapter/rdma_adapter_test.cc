#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "adapter/adapter_core.h"
#include "rdmacomm/softdev.h"
#include "support/environment_variable.h"
#include "support/fake_verbs.h"

namespace rdmacomm {
namespace {

using rdmacomm::testing::FakeVerbs;
using ::testing::HasSubstr;

class RDMAAdapterTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto opened = DeviceCore::open_from(FakeVerbs::api(), {});
    ASSERT_TRUE(opened.has_value()) << opened.error().message();
    device_ = std::move(opened).value();
    auto queue = NativeQueue::create(*device_, {.depth = 1000});
    ASSERT_TRUE(queue.has_value());
    queue_ = std::move(queue).value();
    gid_ = device_->choose_gid().value();
  }
  Result<std::unique_ptr<AdapterCore>> create(const AdapterConfig& config = {}) {
    return AdapterCore::create(*device_, *queue_, *queue_, gid_, config);
  }
  std::unique_ptr<AdapterCore> made(const AdapterConfig& config = {}) {
    auto adapter = create(config);
    EXPECT_TRUE(adapter.has_value()) << adapter.error().message();
    return std::move(adapter).value();
  }
  static QpAddress peer_of(const AdapterCore& adapter) {
    QpAddress peer = adapter.address();
    peer.qpn = 0x000abc;
    return peer;
  }

  FakeVerbs fake_;
  std::shared_ptr<DeviceCore> device_;
  std::unique_ptr<NativeQueue> queue_;
  GidEntry gid_;
};

TEST_F(RDMAAdapterTest, IsInInitAndKnowsItsAddress) {
  const auto adapter = made({.mtu_bytes = 2048});
  EXPECT_EQ(adapter->state(), IBV_QPS_INIT);
  EXPECT_FALSE(adapter->connected());
  EXPECT_EQ(adapter->query_state().value(), IBV_QPS_INIT);
  const QpAddress& address = adapter->address();
  EXPECT_EQ(address.qpn, adapter->qp()->qp_num);
  EXPECT_LE(address.psn, 0xffffffU);
  EXPECT_EQ(address.link_layer, IBV_LINK_LAYER_ETHERNET);
  EXPECT_EQ(address.gid_type, IBV_GID_TYPE_ROCE_V2);
  EXPECT_EQ(address.gid, gid_.gid);
  EXPECT_EQ(address.mtu_bytes, 2048U);
  EXPECT_EQ(address.max_read_depth, 16U);  // the device's limit
  EXPECT_EQ(adapter->path_mtu_bytes(), 0U);
  EXPECT_FALSE(adapter->remote_address().has_value());
}

TEST_F(RDMAAdapterTest, MtuIsAtMostThePorts) {
  fake_.devices[0]->ports[0].active_mtu = IBV_MTU_1024;
  SetUp();
  EXPECT_EQ(made()->address().mtu_bytes, 1024U);
}

TEST_F(RDMAAdapterTest, PacketSequenceNumbersAreRandom) {
  std::set<std::uint32_t> numbers;
  for (int i = 0; i < 20; ++i) numbers.insert(made()->address().psn);
  EXPECT_GT(numbers.size(), 15U);
}

TEST_F(RDMAAdapterTest, ConnectsThroughRtrToRts) {
  const auto adapter = made();
  QpAddress peer = peer_of(*adapter);
  peer.mtu_bytes = 512;
  ASSERT_TRUE(adapter->connect(peer).ok());
  EXPECT_TRUE(adapter->connected());
  EXPECT_EQ(adapter->state(), IBV_QPS_RTS);
  EXPECT_EQ(adapter->path_mtu_bytes(), 512U);
  EXPECT_EQ(adapter->remote_address()->qpn, peer.qpn);
  ASSERT_EQ(fake_.transitions.size(), 3U);
  EXPECT_EQ(fake_.transitions[1].attributes.qp_state, IBV_QPS_RTR);
  EXPECT_EQ(fake_.transitions[1].attributes.path_mtu, IBV_MTU_512);
  EXPECT_EQ(fake_.transitions[1].attributes.dest_qp_num, peer.qpn);
  EXPECT_EQ(fake_.transitions[2].attributes.qp_state, IBV_QPS_RTS);
  EXPECT_EQ(fake_.transitions[2].attributes.max_rd_atomic, 8);  // the device's limit as the initiator
}

TEST_F(RDMAAdapterTest, ConnectsOnce) {
  const auto adapter = made();
  ASSERT_TRUE(adapter->connect(peer_of(*adapter)).ok());
  const Status again = adapter->connect(peer_of(*adapter));
  EXPECT_EQ(again.code(), Errc::kWrongState);
  EXPECT_THAT(again.error().context, HasSubstr("a queue pair in state RTS cannot make the transition INIT -> RTR"));
}

TEST_F(RDMAAdapterTest, DoesNotConnectAfterError) {
  const auto adapter = made();
  ASSERT_TRUE(adapter->to_error().ok());
  EXPECT_EQ(adapter->state(), IBV_QPS_ERR);
  EXPECT_EQ(adapter->connect(peer_of(*adapter)).code(), Errc::kWrongState);
  EXPECT_TRUE(adapter->to_error().ok());
}

TEST_F(RDMAAdapterTest, AnIncompatiblePeerIsRefusedBeforeTheDeviceIsAsked) {
  const auto adapter = made();
  QpAddress peer = peer_of(*adapter);
  peer.gid_type = IBV_GID_TYPE_ROCE_V1;
  EXPECT_EQ(adapter->connect(peer).code(), Errc::kIncompatiblePeer);
  EXPECT_EQ(fake_.calls("modify_qp"), 1);
  EXPECT_EQ(adapter->state(), IBV_QPS_INIT);
}

TEST_F(RDMAAdapterTest, ARefusedTransitionNamesItsValuesAndTheLikelyCause) {
  struct Case {
    int number;
    const char* cause;
  };
  for (const auto& [number, cause] :
       {Case{EINVAL, "cannot reach the peer's GID from this GID index"},
        Case{ETIMEDOUT, "address resolution got no answer"}, Case{EHOSTUNREACH, "no route"},
        Case{ENETUNREACH, "no route"}, Case{ENOMEM, "RLIMIT_MEMLOCK"}, Case{EMFILE, "ulimit -n"},
        Case{EPERM, "the device refused the values"}}) {
    const auto adapter = made();
    fake_.fail("modify_qp", number);
    const Status refused = adapter->connect(peer_of(*adapter));
    EXPECT_EQ(refused.code(), std::error_code(number, std::generic_category()));
    EXPECT_THAT(refused.error().context, HasSubstr("INIT -> RTR"));
    EXPECT_THAT(refused.error().context, HasSubstr("MTU 4096"));
    EXPECT_THAT(refused.error().context, HasSubstr(cause));
    EXPECT_THAT(refused.error().context, HasSubstr("peer: QPN 0x000abc GID ::ffff:10.0.0.1"));
    EXPECT_EQ(adapter->state(), IBV_QPS_INIT);
    EXPECT_FALSE(adapter->remote_address().has_value());
  }
}

TEST_F(RDMAAdapterTest, ARefusedRtsLeavesItUnconnected) {
  const auto adapter = made();
  fake_.fail("modify_qp", EINVAL, 2);
  const Status refused = adapter->connect(peer_of(*adapter));
  EXPECT_EQ(refused.code(), std::errc::invalid_argument);
  EXPECT_THAT(refused.error().context, HasSubstr("RTR -> RTS"));
  EXPECT_FALSE(adapter->connected());
  EXPECT_EQ(adapter->state(), IBV_QPS_RTR);
}

TEST_F(RDMAAdapterTest, ARefusedInitOrQueuePairLeavesNothingBehind) {
  const int before = fake_.live();
  for (const char* verb : {"create_qp", "modify_qp"}) {
    fake_.fail(verb, EINVAL);
    const auto adapter = create({.max_inline_bytes = 0});
    EXPECT_EQ(adapter.code(), std::errc::invalid_argument) << verb;
    EXPECT_THAT(adapter.error().context, HasSubstr("fake0 port 1")) << verb;
    EXPECT_EQ(fake_.live(), before) << verb;
    EXPECT_TRUE(queue_->reserve(1000).ok()) << verb << " kept room in the completion queue";
    queue_->release(1000);
  }
}

TEST_F(RDMAAdapterTest, ARefusedErrorTransitionIsReturned) {
  const auto adapter = made();
  fake_.fail("modify_qp", EIO);
  EXPECT_EQ(adapter->to_error().code(), std::errc::io_error);
  EXPECT_EQ(adapter->state(), IBV_QPS_INIT);
}

TEST_F(RDMAAdapterTest, TooMuchInlineDataIsRefusedWithTheLimit) {
  for (const int asked : {257, 1000, 65'535}) {
    const auto adapter = create({.max_inline_bytes = asked});
    EXPECT_EQ(adapter.code(), Errc::kBeyondDeviceLimit) << asked;
    EXPECT_THAT(adapter.error().context, HasSubstr("does not support max_inline_bytes " + std::to_string(asked) + ":"));
    EXPECT_THAT(adapter.error().context, HasSubstr("it supports at most 256"));
  }
  EXPECT_EQ(made({.max_inline_bytes = 256})->max_inline_bytes(), 256U);
}

TEST_F(RDMAAdapterTest, NoticesThatTheDeviceGrantsLessInlineData) {
  fake_.shrinks_inline = true;
  const auto adapter = create({.max_inline_bytes = 64});
  EXPECT_EQ(adapter.code(), Errc::kBeyondDeviceLimit);
  EXPECT_THAT(adapter.error().context, HasSubstr("it supports at most 32"));
  EXPECT_EQ(made()->max_inline_bytes(), 32U);
}

TEST_F(RDMAAdapterTest, UnsetFieldsAdaptToASmallDevice) {
  ibv_device_attr& attributes = fake_.devices[0]->attributes;
  attributes.max_qp_wr = 16;
  attributes.max_sge = 3;
  attributes.max_sge_rd = 1;
  attributes.max_qp_rd_atom = 4;
  attributes.max_qp_init_rd_atom = 2;
  for (const std::uint32_t inline_limit : {0U, 1U, 20U, 63U}) {
    fake_.max_inline = inline_limit;
    SetUp();
    const int before = fake_.live();
    auto adapter = made();
    const AdapterConfig& config = adapter->config();
    EXPECT_EQ(config.send_depth, 16);
    EXPECT_EQ(config.recv_depth, 16);
    EXPECT_EQ(config.max_send_slices, 3);
    EXPECT_EQ(config.max_recv_slices, 3);
    EXPECT_EQ(config.max_read_slices, 1);
    EXPECT_EQ(config.max_read_depth, 2);
    EXPECT_EQ(config.max_read_depth_responder, 4);
    EXPECT_EQ(config.max_inline_bytes, static_cast<int>(inline_limit));
    EXPECT_EQ(adapter->max_inline_bytes(), inline_limit);
    adapter.reset();
    EXPECT_EQ(fake_.live(), before);
  }
}

TEST_F(RDMAAdapterTest, ReadDepthsBeyondTheDeviceAreRefused) {
  const auto initiator = create({.max_read_depth = 9});
  EXPECT_EQ(initiator.code(), Errc::kBeyondDeviceLimit);
  EXPECT_THAT(initiator.error().context, HasSubstr("max_read_depth is 9; it must be 0..8 on this device"));
  const auto responder = create({.max_read_depth_responder = 17});
  EXPECT_EQ(responder.code(), Errc::kBeyondDeviceLimit);
  EXPECT_THAT(responder.error().context, HasSubstr("max_read_depth_responder is 17; it must be 0..16"));
}

TEST_F(RDMAAdapterTest, ARefusalForOtherReasonsKeepsItsCode) {
  fake_.fail("create_qp", ENOMEM);
  const auto adapter = create({.max_inline_bytes = 64});
  EXPECT_EQ(adapter.code(), std::errc::not_enough_memory);
  EXPECT_THAT(adapter.error().context, HasSubstr("send_depth 128, recv_depth 128"));
}

TEST_F(RDMAAdapterTest, ReservesRoomForAllItsRequests) {
  const AdapterConfig config{.send_depth = 300, .recv_depth = 200};
  auto first = made(config);
  const auto second = made(config);
  const auto third = create(config);
  EXPECT_EQ(third.code(), Errc::kCompletionQueueFull);
  EXPECT_THAT(third.error().context, HasSubstr("room for 0 more requests"));
  first.reset();
  EXPECT_TRUE(create(config).has_value());
}

TEST_F(RDMAAdapterTest, AReservationThatFitsOnlyInPartIsReturned) {
  EXPECT_EQ(create({.send_depth = 900, .recv_depth = 101}).code(), Errc::kCompletionQueueFull);
  EXPECT_TRUE(create({.send_depth = 900, .recv_depth = 100}).has_value());
}

TEST_F(RDMAAdapterTest, APartitionIsFoundByItsKey) {
  fake_.devices[0]->set_pkeys({0xffff, 0x8005, 0x0006});
  SetUp();
  const auto by_key = made({.pkey = 0x0005});
  EXPECT_EQ(by_key->config().pkey_index, 1);
  EXPECT_EQ(by_key->address().pkey, 0x8005);
  EXPECT_EQ(fake_.transitions.back().attributes.pkey_index, 1);
  EXPECT_EQ(made({.pkey_index = 2})->address().pkey, 0x0006);
  EXPECT_EQ(made()->address().pkey, 0xffff);
  const auto unknown = create({.pkey = 0x8007});
  EXPECT_EQ(unknown.code(), Errc::kInvalidArgument);
  EXPECT_THAT(unknown.error().context, HasSubstr("0x8005 at index 1"));
}

TEST_F(RDMAAdapterTest, ItsGidCanChangeUntilItIsConnected) {
  const auto adapter = made();
  const GidEntry other{
      .index = 7, .type = GidType::kRoceV2, .gid = {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 9}}};
  ASSERT_TRUE(adapter->use_gid(other).ok());
  EXPECT_EQ(adapter->address().gid.raw[13], 9);
  ASSERT_TRUE(adapter->connect(peer_of(*adapter)).ok());
  EXPECT_EQ(fake_.transitions[1].attributes.ah_attr.grh.sgid_index, 7);
  EXPECT_EQ(adapter->use_gid(gid_).code(), Errc::kWrongState);
  EXPECT_EQ(adapter->address().gid.raw[13], 9);
}

TEST_F(RDMAAdapterTest, ServiceLevelAndTrafficClassReachTheDevice) {
  const auto adapter = made({.traffic_class = 106, .service_level = 3});
  ASSERT_TRUE(adapter->connect(peer_of(*adapter)).ok());
  const ibv_ah_attr& handle = fake_.transitions[1].attributes.ah_attr;
  EXPECT_EQ(handle.sl, 3);
  EXPECT_EQ(handle.grh.traffic_class, 106);
}

TEST_F(RDMAAdapterTest, AnInvalidConfigIsRefusedFirst) {
  EXPECT_EQ(create({.send_depth = 0}).code(), Errc::kInvalidArgument);
  EXPECT_EQ(create({.send_depth = 1025}).code(), Errc::kBeyondDeviceLimit);
  EXPECT_EQ(fake_.calls("create_qp"), 0);
}

TEST_F(RDMAAdapterTest, AFailedQueryIsReturned) {
  const auto adapter = made();
  fake_.fail("query_qp", EIO);
  EXPECT_EQ(adapter->query_state().code(), std::errc::io_error);
}

// On the software device, which answers like a real device.
class SoftAdapterTest : public ::testing::Test {
 protected:
  void SetUp() override {
    device_ = DeviceCore::open({.name = "soft0"}).value();
    queue_ = NativeQueue::create(*device_, {}).value();
  }
  Result<std::unique_ptr<AdapterCore>> create(const AdapterConfig& config = {}) {
    return AdapterCore::create(*device_, *queue_, *queue_, device_->choose_gid().value(), config);
  }
  std::shared_ptr<DeviceCore> device_;
  std::unique_ptr<NativeQueue> queue_;
};

TEST_F(SoftAdapterTest, WithoutTcpAPeerOnAnotherHostIsOutOfReach) {
  queue_.reset();
  device_.reset();
  const rdmacomm::testing::EnvironmentVariable variable(softdev::kTcpVariable, "memory");
  SetUp();
  const auto adapter = create().value();
  QpAddress peer = adapter->address();
  // 192.0.2.1 or 2001:db8::1: addresses that no host has (RFC 5737, RFC 3849).
  const bool ipv4 = peer.gid.raw[10] == 0xff && peer.gid.raw[11] == 0xff;
  const Gid nowhere = ipv4 ? Gid{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 1}}
                           : Gid{{0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}};
  peer.gid = nowhere;
  const Status refused = adapter->connect(peer);
  EXPECT_EQ(refused.code(), std::errc::host_unreachable);
  EXPECT_THAT(refused.error().context, HasSubstr("INIT -> RTR"));
  EXPECT_THAT(refused.error().context, HasSubstr("the local GID cannot reach the peer's GID"));
}

TEST_F(SoftAdapterTest, InlineBeyondTheDeviceIsNamedAsSuch) {
  const auto adapter = create({.max_inline_bytes = 65'535});
  EXPECT_EQ(adapter.code(), Errc::kBeyondDeviceLimit);
  EXPECT_THAT(adapter.error().context, HasSubstr("does not support max_inline_bytes 65535"));
  EXPECT_THAT(adapter.error().context, HasSubstr("it supports at most"));
}

TEST_F(SoftAdapterTest, CanBeCreatedAndDestroyedManyTimes) {
  for (int round = 0; round < 1000; ++round) {
    const auto adapter = create();
    ASSERT_TRUE(adapter.has_value()) << "round " << round << ": " << adapter.error().message();
  }
}

}  // namespace
}  // namespace rdmacomm
