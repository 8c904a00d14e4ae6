// Shared receive queues: several queue pairs take their receives from one queue.
#include <gtest/gtest.h>

#include <cstring>

#include "contract/async_events.h"
#include "contract/raw_end.h"
#include "verbs/call.h"

namespace rdmacomm::contract {
namespace {

constexpr std::uint32_t kSrqDepth = 16;

/// One SRQ on the device under test, two queue pairs that receive from it, and one sender for each.
class SrqTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(TestDevice::own().why_not(), "");
    sender_ = TestDevice::peers().choice().open().value();
    receiver_ = TestDevice::own().choice().open().value();
    if (attributes_of(*receiver_).max_srq == 0) GTEST_SKIP() << "capability: max_srq is 0";
    ibv_srq_init_attr init{};
    init.attr.max_wr = kSrqDepth;
    init.attr.max_sge = 1;
    const verbs::Api& api = receiver_->api();
    srq_ = verbs::SrqHandle(api, api.create_srq(receiver_->pd(), &init));
    ASSERT_TRUE(static_cast<bool>(srq_)) << strerror(errno);
    depth_ = queries() ? query().max_wr : init.attr.max_wr;  // devices round up, and not all report it at creation
    inbox_ = RDMABuffer::allocate(receiver_, {.block_bytes = 64, .block_count = kSrqDepth}).value();
    source_ = RDMABuffer::allocate(sender_, {.block_bytes = 64}).value();
    for (int i = 0; i < 2; ++i) link_one();
  }

  void link_one() {
    senders_.push_back(std::make_unique<RawEnd>(*sender_));
    receivers_.push_back(std::make_unique<RawEnd>(*receiver_, RawOptions{.srq = srq_.get()}));
    auto linked = PairLinker::create()->link_both(senders_.back()->link_end(TestDevice::peers().address),
                                                  receivers_.back()->link_end(TestDevice::own().address));
    ASSERT_TRUE(linked.has_value()) << linked.error().message();
    links_.push_back(std::move(*linked));
  }
  int post_receive(std::uint64_t id) {
    ibv_sge slice = sge_of(inbox_.at(id % kSrqDepth));
    ibv_recv_wr wr{};
    wr.wr_id = id;
    wr.sg_list = &slice;
    wr.num_sge = 1;
    ibv_recv_wr* bad = nullptr;
    return ibv_post_srq_recv(srq_.get(), &wr, &bad);
  }
  void send(std::size_t which) {
    ASSERT_EQ(senders_[which]->post_send(sge_of(source_.at(0)), 1), 0);
    ASSERT_EQ(senders_[which]->next().status, IBV_WC_SUCCESS);
  }
  [[nodiscard]] bool queries() const { return has(kind_of(*receiver_), Trait::kQueriesSrq); }
  ibv_srq_attr query() {
    ibv_srq_attr attributes{};
    EXPECT_EQ(receiver_->api().query_srq(srq_.get(), &attributes), 0);
    return attributes;
  }

  std::shared_ptr<DeviceCore> sender_;
  std::shared_ptr<DeviceCore> receiver_;
  verbs::SrqHandle srq_;
  std::uint32_t depth_ = 0;
  RDMABuffer inbox_;
  RDMABuffer source_;
  std::vector<std::unique_ptr<RawEnd>> senders_;
  std::vector<std::unique_ptr<RawEnd>> receivers_;
  std::vector<PairLinker::Both> links_;
};

TEST_F(SrqTest, QueuePairsTakeReceivesInTheOrderOfMessages) {
  for (std::uint64_t i = 0; i < 6; ++i) ASSERT_EQ(post_receive(i), 0);
  for (std::uint64_t i = 0; i < 6; ++i) {
    std::memset(source_.data(), static_cast<int>(i + 1), 64);
    send(i % 2);
    const ibv_wc received = receivers_[i % 2]->next();
    EXPECT_EQ(received.status, IBV_WC_SUCCESS);
    EXPECT_EQ(received.wr_id, i);
    EXPECT_EQ(received.byte_len, 64U);
    EXPECT_EQ(received.qp_num, receivers_[i % 2]->qp()->qp_num);
    EXPECT_EQ(inbox_.at(i).data()[63], static_cast<std::byte>(i + 1));
  }
}

TEST_F(SrqTest, AFullQueueRefusesMore) {
  ASSERT_GE(depth_, kSrqDepth);
  for (std::uint32_t i = 0; i < depth_; ++i) ASSERT_EQ(post_receive(i), 0) << i;
  EXPECT_EQ(verbs::error_number(post_receive(depth_)), ENOMEM);
  send(0);
  EXPECT_EQ(receivers_[0]->next().status, IBV_WC_SUCCESS);
  EXPECT_EQ(post_receive(depth_), 0);
}

TEST_F(SrqTest, TheLimitEventFiresOnce) {
  for (std::uint64_t i = 0; i < 4; ++i) ASSERT_EQ(post_receive(i), 0);
  ibv_srq_attr attributes{};
  attributes.srq_limit = 3;
  ASSERT_EQ(receiver_->api().modify_srq(srq_.get(), &attributes, IBV_SRQ_LIMIT), 0);
  if (queries()) {
    EXPECT_EQ(query().srq_limit, 3U);
  }
  AsyncEvents events(*receiver_);
  send(0);
  send(0);  // two receives remain, fewer than the limit
  EXPECT_TRUE(events.comes(IBV_EVENT_SRQ_LIMIT_REACHED));
  if (queries()) {
    EXPECT_EQ(query().srq_limit, 0U) << "disarmed by the event";
  }
}

}  // namespace
}  // namespace rdmacomm::contract
