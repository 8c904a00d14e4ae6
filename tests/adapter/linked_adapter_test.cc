// AdapterCore::connect() with a connection manager's help.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "adapter/adapter_core.h"
#include "support/fake_verbs.h"

namespace rdmacomm {
namespace {

using rdmacomm::testing::FakeVerbs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// The results that a test's link returns, and a record of its calls.
struct Script {
  bool device_moves = false;
  std::uint16_t pkey_index = 0;
  std::string fails_in = {};  ///< "begin", "INIT", "RTR", "RTS" or "finish"
  std::vector<std::string> steps = {};
  verbs::LinkOptions options = {};

  Status step(const std::string& name) {
    steps.push_back(name);
    if (name != fails_in) return {};
    return make_error(Errc::kPeerLost, "the link fails in " + name);
  }
};

class FakeLink final : public verbs::QueuePairLink {
 public:
  explicit FakeLink(Script& script) : script_(script) {}
  Status begin(const verbs::LinkOptions& options) override {
    script_.options = options;
    return script_.step("begin");
  }
  [[nodiscard]] bool device_moves_queue_pair() const noexcept override { return script_.device_moves; }
  Status attributes(ibv_qp_state to, ibv_qp_attr& attributes) override {
    attributes.pkey_index = script_.pkey_index;
    attributes.ah_attr.grh.sgid_index = 5;
    attributes.ah_attr.is_global = 1;
    attributes.path_mtu = IBV_MTU_1024;
    attributes.dest_qp_num = 0x777;
    return script_.step(to == IBV_QPS_INIT ? "INIT" : to == IBV_QPS_RTR ? "RTR" : "RTS");
  }
  Status finish() override { return script_.step("finish"); }

 private:
  Script& script_;
};

class LinkedAdapter : public ::testing::Test {
 protected:
  /// An adapter with `config` for which connect() was called. Its result is in `connected_`.
  std::unique_ptr<AdapterCore> connect(const AdapterConfig& config = {}) {
    // Created once: adapters of earlier calls use them.
    if (device_ == nullptr) device_ = DeviceCore::open_from(FakeVerbs::api()).value();
    if (queue_ == nullptr) queue_ = NativeQueue::create(*device_, {.depth = 1000}).value();
    auto adapter = AdapterCore::create(*device_, *queue_, *queue_, device_->choose_gid().value(), config).value();
    QpAddress peer = adapter->address();
    peer.qpn = 0xabc;
    peer.max_read_depth = 3;
    connected_ = adapter->connect(peer, std::make_unique<FakeLink>(script_));
    return adapter;
  }
  FakeVerbs fake_;
  Script script_;
  std::shared_ptr<DeviceCore> device_;
  std::unique_ptr<NativeQueue> queue_;
  Status connected_;
};

TEST_F(LinkedAdapter, FollowsTheLinkToRts) {
  const auto adapter = connect({.traffic_class = 106, .service_level = 3, .retry_count = 5, .rnr_retry = 2});
  ASSERT_TRUE(connected_.ok()) << connected_.message();
  EXPECT_TRUE(adapter->connected());
  EXPECT_THAT(script_.steps, ElementsAre("begin", "INIT", "RTR", "RTS", "finish"));
  EXPECT_EQ(script_.options.initiator_depth, 3);
  EXPECT_EQ(script_.options.responder_resources, 16);
  EXPECT_EQ(script_.options.retry_count, 5);
  EXPECT_EQ(script_.options.rnr_retry, 2);
  EXPECT_EQ(script_.options.traffic_class, 106);
  ASSERT_EQ(fake_.transitions.size(), 3U);
  const ibv_qp_attr& rtr = fake_.transitions[1].attributes;
  EXPECT_EQ(rtr.ah_attr.grh.sgid_index, 5);
  EXPECT_EQ(rtr.ah_attr.grh.traffic_class, 106);
  EXPECT_EQ(rtr.ah_attr.sl, 3);
  EXPECT_EQ(rtr.path_mtu, IBV_MTU_1024);
  EXPECT_EQ(rtr.dest_qp_num, 0x777U);
}

TEST_F(LinkedAdapter, DoesNotMoveAQueuePairThatTheDeviceMoves) {
  script_.device_moves = true;
  const auto adapter = connect();
  ASSERT_TRUE(connected_.ok()) << connected_.message();
  EXPECT_TRUE(adapter->connected());
  EXPECT_THAT(script_.steps, ElementsAre("begin", "finish"));
  EXPECT_EQ(fake_.transitions.size(), 1U);
}

TEST_F(LinkedAdapter, AFailureOfTheLinkEndsTheConnectingThere) {
  for (const char* step : {"begin", "INIT", "RTR", "RTS", "finish"}) {
    SCOPED_TRACE(step);
    script_ = {.fails_in = step};
    const auto adapter = connect();
    EXPECT_EQ(connected_.code(), Errc::kPeerLost);
    EXPECT_THAT(connected_.message(), HasSubstr(std::string("the link fails in ") + step));
    EXPECT_THAT(connected_.message(), HasSubstr("peer: QPN 0x000abc"));
    EXPECT_EQ(script_.steps.back(), step);
    EXPECT_FALSE(adapter->remote_address().has_value());
  }
}

TEST_F(LinkedAdapter, UsesThePartitionOfTheLink) {
  fake_.devices[0]->set_pkeys({0xffff, 0x8005});
  script_.pkey_index = 1;
  const auto adapter = connect();
  ASSERT_TRUE(connected_.ok()) << connected_.message();
  EXPECT_EQ(adapter->config().pkey_index, 1);
  EXPECT_EQ(adapter->address().pkey, 0x8005);
  ASSERT_EQ(fake_.transitions.size(), 4U);
  EXPECT_EQ(fake_.transitions[1].attributes.qp_state, IBV_QPS_INIT);
  EXPECT_EQ(fake_.transitions[1].attributes.pkey_index, 1);
  EXPECT_EQ(fake_.transitions[2].attributes.qp_state, IBV_QPS_RTR);
}

TEST_F(LinkedAdapter, AnotherPartitionThanRequestedIsRefusedWithBoth) {
  fake_.devices[0]->set_pkeys({0xffff, 0x8005});
  const auto wrong = connect({.pkey = 0x8005});
  EXPECT_EQ(connected_.code(), Errc::kInvalidArgument);
  EXPECT_THAT(connected_.message(), HasSubstr("with P_Key index 0, but P_Key 0x8005 (index 1) was requested"));
  script_.pkey_index = 1;
  const auto right = connect({.pkey = 0x8005});
  EXPECT_TRUE(connected_.ok()) << connected_.message();
}

}  // namespace
}  // namespace rdmacomm
