// Receive pools: the messages of several channels go to the receives of one pool.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "channel/completion_queue.h"
#include "channel/receive_pool_core.h"
#include "contract/contract_test.h"

namespace rdmacomm::contract {
namespace {

constexpr int kPoolDepth = 8;
constexpr std::size_t kChannels = 2;

struct Message {
  std::uint64_t sender = 0;
  std::uint64_t number = 0;
};

/// Channels with one pool and one completion queue on the device under test, and one sender for each.
class ReceivePoolTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(TestDevice::own().why_not(), "");
    device_ = TestDevice::own().choice().open().value();
    if (device_->limits().max_srq == 0) GTEST_SKIP() << "capability: max_srq is 0";
    pool_ = ReceivePoolCore::create(device_, {.depth = kPoolDepth, .message_bytes = 64}).value();
    queue_ = CompletionQueue::create(device_, {.depth = 256}).value();
    for (std::size_t i = 0; i < kChannels; ++i) add_channel();
    ASSERT_EQ(pool_->posted(), kPoolDepth);
  }
  ~ReceivePoolTest() override {
    for (const auto& channel : receivers_) queue_->detach(*channel);
  }

  void add_channel() {
    auto adapter = AdapterCore::create(*device_, queue_->native(), queue_->native(), device_->choose_gid().value(), {},
                                       &pool_->queue());
    ASSERT_TRUE(adapter.has_value()) << adapter.error().message();
    receivers_.push_back(ChannelCore::create("pooled", std::move(*adapter), pool_).value());
    queue_->attach(*receivers_.back());
    senders_.push_back(ConnectedPair::make_end(TestDevice::peers().choice(), "sender", {}, false).value());
    sources_.push_back(senders_.back().buffer(sizeof(Message)));
    auto linked =
        PairLinker::create()->link_both(link_end(senders_.back().channel->adapter(), TestDevice::peers().address),
                                        link_end(receivers_.back()->adapter(), TestDevice::own().address));
    ASSERT_TRUE(linked.has_value()) << linked.error().message();
    links_.push_back(std::move(*linked));
  }
  void send(std::size_t sender, std::uint64_t number) {
    const Message message{sender, number};
    std::memcpy(sources_[sender].data(), &message, sizeof(message));
    ASSERT_TRUE(senders_[sender].channel->post_send(sources_[sender].at(0), {.id = number}));
    const Completion sent = senders_[sender].next();
    ASSERT_TRUE(sent.ok()) << sent.status().message();
  }
  /// The next completion, on any of the channels.
  Completion next() {
    const Deadline deadline = patience();
    Completion completion;
    for (;;) {
      const Polled polled = queue_->poll({&completion, 1});
      EXPECT_TRUE(polled);
      if (!polled.empty()) return completion;
      if (!polled || deadline.passed()) {
        completion.error = Errc::kTimeout;
        return completion;
      }
    }
  }
  void expect_message(const Completion& completion, std::size_t sender, std::uint64_t number) {
    ASSERT_TRUE(completion.ok()) << completion.status().message();
    EXPECT_EQ(completion.operation, Operation::kRecv);
    EXPECT_EQ(completion.channel, receivers_[sender].get()) << "whose message it is";
    const auto bytes = pool_->message(completion);
    Message message;
    ASSERT_EQ(bytes.size(), sizeof(message));
    std::memcpy(&message, bytes.data(), sizeof(message));
    EXPECT_EQ(message.sender, sender);
    EXPECT_EQ(message.number, number);
  }

  std::shared_ptr<DeviceCore> device_;
  std::shared_ptr<ReceivePoolCore> pool_;
  std::shared_ptr<CompletionQueue> queue_;
  std::vector<std::unique_ptr<ChannelCore>> receivers_;
  std::vector<ChannelEnd> senders_;
  std::vector<RDMABuffer> sources_;
  std::vector<PairLinker::Both> links_;
};

TEST_F(ReceivePoolTest, ReceivesMoreMessagesThanItsSizeOverAllChannels) {
  for (std::uint64_t number = 0; number < 3 * kPoolDepth; ++number) {
    for (std::size_t sender = 0; sender < kChannels; ++sender) {
      send(sender, number);
      const Completion completion = next();
      expect_message(completion, sender, number);
      EXPECT_EQ(pool_->posted(), kPoolDepth - 1);
      ASSERT_TRUE(pool_->give_back(completion));
    }
  }
  EXPECT_EQ(pool_->posted(), kPoolDepth);
}

TEST_F(ReceivePoolTest, KeptReceivesMayReturnInAnyOrder) {
  std::vector<Completion> kept;
  for (std::uint64_t number = 0; number < kPoolDepth; ++number) {
    send(number % kChannels, number);
    kept.push_back(next());
    expect_message(kept.back(), number % kChannels, number);
  }
  EXPECT_EQ(pool_->posted(), 0);
  for (const std::size_t i : {3, 0, 7, 1, 6, 2, 5, 4}) ASSERT_TRUE(pool_->give_back(kept[i]));
  EXPECT_EQ(pool_->posted(), kPoolDepth);
  EXPECT_EQ(pool_->give_back(kept[0]), Errc::kWrongState) << "a second time";
  send(0, 99);
  expect_message(next(), 0, 99);
}

TEST_F(ReceivePoolTest, AChannelThatEndsDoesNotTakeReceivesOfOthers) {
  ASSERT_TRUE(receivers_[0]->adapter().to_error().ok());
  queue_->detach(*receivers_[0]);
  for (std::uint64_t number = 0; number < 2 * kPoolDepth; ++number) {
    send(1, number);
    const Completion completion = next();
    expect_message(completion, 1, number);
    ASSERT_TRUE(pool_->give_back(completion));
  }
  EXPECT_EQ(pool_->posted(), kPoolDepth);
}

}  // namespace
}  // namespace rdmacomm::contract
