// Receives for many peers: on the fake device, the pool's reaction to the device's answers; on soft0, its behaviour
// towards peers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>

#include "channel/completion_queue.h"
#include "channel/receive_pool_core.h"
#include "support/connected_pair.h"
#include "support/fake_verbs.h"

namespace rdmacomm {
namespace {

using namespace std::chrono_literals;
using rdmacomm::testing::ChannelEnd;
using rdmacomm::testing::ConnectedPair;
using rdmacomm::testing::FakeVerbs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// One channel that uses a pool of four receives, on the fake device.
class PoolOnFake : public ::testing::Test {
 protected:
  void SetUp() override {
    fake_.devices[0]->attributes.max_srq = 10;
    fake_.devices[0]->attributes.max_srq_wr = 512;
    device_ = DeviceCore::open_from(FakeVerbs::api(), {}).value();
    queue_ = CompletionQueue::create(device_, {.depth = 1000}).value();
    pool_ = ReceivePoolCore::create(device_, {.depth = 4, .message_bytes = 64, .low_water = 2}).value();
    channel_ = make_channel();
  }
  std::unique_ptr<ChannelCore> make_channel() {
    auto adapter = AdapterCore::create(*device_, queue_->native(), queue_->native(), device_->choose_gid().value(), {},
                                       &pool_->queue())
                       .value();
    return ChannelCore::create("pooled", std::move(adapter), pool_).value();
  }
  Completion arrive() {
    fake_.complete_shared_recv(channel_->adapter().address().qpn, 8);
    Completion completion;
    const Polled polled = channel_->poll({&completion, 1});
    EXPECT_TRUE(polled);
    EXPECT_EQ(polled.size(), 1U);
    return completion;
  }

  FakeVerbs fake_;
  std::shared_ptr<DeviceCore> device_;
  std::shared_ptr<CompletionQueue> queue_;
  std::shared_ptr<ReceivePoolCore> pool_;
  std::unique_ptr<ChannelCore> channel_;
};

TEST_F(PoolOnFake, ValuesOutsideTheirRangeAreRefused) {
  EXPECT_EQ(ReceivePoolCore::create(device_, {.depth = 0}).code(), Errc::kInvalidArgument);
  EXPECT_EQ(ReceivePoolCore::create(device_, {.depth = 513}).code(), Errc::kBeyondDeviceLimit);
  EXPECT_EQ(ReceivePoolCore::create(device_, {.depth = 8, .message_bytes = 0}).code(), Errc::kInvalidArgument);
  const auto all_low = ReceivePoolCore::create(device_, {.depth = 8, .low_water = 8});
  EXPECT_EQ(all_low.code(), Errc::kInvalidArgument);
  EXPECT_THAT(all_low.error().context, HasSubstr("low_water of a receive pool is 8; it must be 0..7"));
}

TEST_F(PoolOnFake, FailuresOfTheDeviceAreReturnedAndNothingLeaks) {
  const int before = fake_.live();
  for (const char* verb : {"create_srq", "reg_mr", "post_srq_recv", "modify_srq"}) {
    fake_.fail(verb, EIO);
    EXPECT_EQ(ReceivePoolCore::create(device_, {.depth = 4, .low_water = 1}).code(), std::errc::io_error) << verb;
    EXPECT_EQ(fake_.live(), before) << verb;
  }
}

TEST_F(PoolOnFake, TheQueuePairHasNoReceivesOfItsOwn) {
  EXPECT_EQ(channel_->adapter().qp()->srq, pool_->queue().get());
  EXPECT_EQ(channel_->recv_depth(), 0);
  EXPECT_EQ(channel_->post_recv({}, {.id = 1}), Errc::kNotSupported);
  const auto buffer = RDMABuffer::allocate(device_, {}).value();
  EXPECT_EQ(channel_->post_recv(buffer.at(0), {.id = 1}), Errc::kNotSupported);
}

TEST_F(PoolOnFake, AReceiveIsGivenBackOnce) {
  const Completion first = arrive();
  EXPECT_EQ(first.operation, Operation::kRecv);
  EXPECT_EQ(first.bytes, 8U);
  EXPECT_EQ(pool_->message(first).size(), 8U);
  EXPECT_EQ(pool_->posted(), 3);
  EXPECT_TRUE(pool_->give_back(first));
  EXPECT_EQ(pool_->posted(), 4);
  EXPECT_EQ(pool_->give_back(first), Errc::kWrongState);
  EXPECT_EQ(pool_->posted(), 4);
}

TEST_F(PoolOnFake, KeptReceivesAreNotReturnedWithTheOthers) {
  const std::array all = {arrive(), arrive(), arrive()};
  pool_->keep(all[1]);
  fake_.shared_recv_lengths.clear();
  EXPECT_TRUE(ReceivePool::give_back_unkept(all));
  EXPECT_THAT(fake_.shared_recv_lengths, ElementsAre(2)) << "with one doorbell";
  EXPECT_EQ(pool_->posted(), 3);
  EXPECT_TRUE(pool_->give_back(all[1]));
  EXPECT_EQ(pool_->posted(), 4);
}

TEST_F(PoolOnFake, AReceiveThatTheDeviceRefusesIsNotCounted) {
  const Completion first = arrive();
  fake_.fail("post_srq_recv", EIO);
  EXPECT_EQ(pool_->give_back(first), std::errc::io_error);
  EXPECT_EQ(pool_->posted(), 3);
}

TEST_F(PoolOnFake, AReceiveThatADriverRefusesWithoutNamingItIsNotCounted) {
  const Completion first = arrive();
  fake_.names_refused_requests = false;
  fake_.fail("post_srq_recv", EIO);
  EXPECT_EQ(pool_->give_back(first), std::errc::io_error);
  EXPECT_EQ(pool_->posted(), 3);
}

TEST_F(PoolOnFake, TheLimitIsSetAgainOnceEnoughReceivesAreBack) {
  EXPECT_THAT(fake_.srq_limits, ElementsAre(2));
  const std::array all = {arrive(), arrive(), arrive()};
  pool_->note_low();  // like the thread that takes the device's events
  EXPECT_EQ(pool_->times_low(), 1);
  (void)arrive();
  EXPECT_TRUE(pool_->give_back(all[0]));
  EXPECT_THAT(fake_.srq_limits, ElementsAre(2)) << "one is posted: it would say so at once";
  EXPECT_TRUE(pool_->give_back(all[1]));
  EXPECT_THAT(fake_.srq_limits, ElementsAre(2, 2));
  EXPECT_TRUE(pool_->give_back(all[2]));
  EXPECT_THAT(fake_.srq_limits, ElementsAre(2, 2)) << "once";
}

TEST_F(PoolOnFake, TheLimitIsSetAgainAfterALateNotice) {
  pool_->note_low();  // for an event that was pending while they were given back
  EXPECT_THAT(fake_.srq_limits, ElementsAre(2));
  (void)arrive();
  EXPECT_THAT(fake_.srq_limits, ElementsAre(2, 2)) << "else nobody is told when what comes from now on is kept";
}

TEST_F(PoolOnFake, NoticesLowWaterWithoutAnEventOfTheDevice) {
  const std::array all = {arrive(), arrive()};
  EXPECT_EQ(pool_->times_low(), 0);
  (void)arrive();
  EXPECT_EQ(pool_->times_low(), 1);
  pool_->note_low();  // the device reports it after all
  EXPECT_EQ(pool_->times_low(), 1) << "of the same";
  EXPECT_TRUE(pool_->take_low_notice());
  EXPECT_FALSE(pool_->take_low_notice()) << "once";
  for (const Completion& each : all) EXPECT_TRUE(pool_->give_back(each));
  EXPECT_THAT(fake_.srq_limits, ElementsAre(2, 2));
}

TEST_F(PoolOnFake, ReceivesOfADetachedChannelReturnToThePool) {
  queue_->attach(*channel_);
  fake_.complete_shared_recv(channel_->adapter().address().qpn, 8);
  queue_->detach(*channel_);
  std::array<Completion, 4> out;
  Polled polled = queue_->poll(out);
  ASSERT_TRUE(polled);
  EXPECT_EQ(polled.size(), 0U);
  EXPECT_EQ(pool_->posted(), 4);
}

TEST_F(PoolOnFake, ADrainReturnsItsReceivesAndDoesNotWaitForOthers) {
  fake_.complete_shared_recv(channel_->adapter().address().qpn, 8);
  EXPECT_TRUE(channel_->drain(Deadline::after(1s)).ok());
  EXPECT_EQ(pool_->posted(), 4);
}

TEST_F(PoolOnFake, ADrainEndsOnlyWhenTheQueueIsEmpty) {
  EXPECT_TRUE(channel_->begin_drain().ok());
  EXPECT_FALSE(channel_->drained());
  channel_->found_empty();
  EXPECT_TRUE(channel_->drained());
}

/// Two peers on soft0, each with a channel to one receiver, whose channels share a pool.
class PoolOnSoft0 : public ::testing::Test {
 protected:
  void SetUp() override {
    device_ = DeviceCore::open({.name = "soft0"}).value();
    queue_ = CompletionQueue::create(device_, {.depth = 1000}).value();
    pool_ = ReceivePoolCore::create(device_, {.depth = 4, .message_bytes = 64}).value();
    for (int i = 0; i < 2; ++i) add_peer();
  }
  void add_peer() {
    peers_.push_back(ConnectedPair::make_end({}, "peer", {.rnr_retry = 1}, false).value());
    auto adapter = AdapterCore::create(*device_, queue_->native(), queue_->native(), device_->choose_gid().value(),
                                       {.min_rnr_timer = 10us}, &pool_->queue())
                       .value();
    channels_.push_back(ChannelCore::create("pooled", std::move(adapter), pool_).value());
    AdapterCore& mine = channels_.back()->adapter();
    AdapterCore& theirs = peers_.back().channel->adapter();
    ASSERT_TRUE(mine.connect(theirs.address()).ok());
    ASSERT_TRUE(theirs.connect(mine.address()).ok());
    queue_->attach(*channels_.back());
  }
  /// Makes a peer send a number. Returns the peer's completion of the request.
  Completion send(std::size_t peer, std::uint64_t number) {
    const auto buffer = peers_[peer].buffer(8);
    std::memcpy(buffer.data(), &number, 8);
    EXPECT_TRUE(peers_[peer].channel->post_send(buffer.at(0), {.id = 1}));
    return peers_[peer].next();
  }
  Completion next() {
    Completion completion;
    const Deadline deadline = Deadline::after(10s);
    Polled polled;
    while (polled && polled.empty() && !deadline.passed()) polled = queue_->poll({&completion, 1});
    EXPECT_TRUE(polled);
    EXPECT_EQ(polled.size(), 1U);
    return completion;
  }
  std::uint64_t number_in(const Completion& completion) {
    std::uint64_t number = 0;
    EXPECT_EQ(pool_->message(completion).size(), 8U);
    std::memcpy(&number, pool_->message(completion).data(), 8);
    return number;
  }

  std::shared_ptr<DeviceCore> device_;
  std::shared_ptr<CompletionQueue> queue_;
  std::shared_ptr<ReceivePoolCore> pool_;
  std::vector<ChannelEnd> peers_;
  std::vector<std::unique_ptr<ChannelCore>> channels_;
};

TEST_F(PoolOnSoft0, MessagesOfManyPeersTakeReceivesOfOnePool) {
  for (std::uint64_t number = 0; number < 20; ++number) {
    const std::size_t peer = number % 2;
    ASSERT_TRUE(send(peer, number).ok());
    const Completion received = next();
    ASSERT_TRUE(received.ok());
    EXPECT_EQ(received.channel, channels_[peer].get());
    EXPECT_EQ(number_in(received), number);
    EXPECT_TRUE(pool_->give_back(received));
  }
  EXPECT_EQ(pool_->posted(), 4);
}

TEST_F(PoolOnSoft0, AnEmptyPoolMakesSendersWaitAndThenFail) {
  for (std::uint64_t number = 0; number < 4; ++number) ASSERT_TRUE(send(0, number).ok());
  EXPECT_EQ(send(1, 4).error, Errc::kRnrRetryExceeded);
}

TEST_F(PoolOnSoft0, AMessageThatIsTooLongFailsAtBothEndsAndItsReceiveReturns) {
  const auto buffer = peers_[0].buffer(65);
  ASSERT_TRUE(peers_[0].channel->post_send(buffer.at(0), {.id = 1}));
  EXPECT_EQ(peers_[0].next().error, Errc::kRemoteInvalidRequest);
  const Completion failed = next();
  EXPECT_EQ(failed.error, Errc::kLocalLength);
  EXPECT_EQ(failed.operation, Operation::kRecv);
  EXPECT_TRUE(pool_->message(failed).empty());
  EXPECT_TRUE(pool_->give_back(failed));
  EXPECT_EQ(pool_->posted(), 4);
  EXPECT_TRUE(send(1, 5).ok()) << "the other channel goes on";
  EXPECT_EQ(number_in(next()), 5U);
}

TEST_F(PoolOnSoft0, AWriteWithImmediateUsesAReceiveAndDoesNotWriteToIt) {
  const auto target = RDMABuffer::allocate(device_, {.remote_access = RemoteAccess::kWrite}).value();
  const auto source = peers_[0].buffer(8);
  ASSERT_TRUE(peers_[0].channel->post_write(source.at(0), target.remote_region(), {.id = 1, .immediate = 77}));
  ASSERT_TRUE(peers_[0].next().ok());
  const Completion told = next();
  EXPECT_EQ(told.operation, Operation::kRecvWriteImm);
  EXPECT_EQ(told.immediate, 77U);
  EXPECT_TRUE(pool_->message(told).empty());
  EXPECT_TRUE(pool_->give_back(told));
  EXPECT_EQ(pool_->posted(), 4);
}

TEST_F(PoolOnSoft0, OneChannelEndsAndTheOtherKeepsThePool) {
  ASSERT_TRUE(send(0, 1).ok());  // no thread polls for it
  ASSERT_TRUE(channels_[0]->begin_drain().ok());
  const Completion left = next();
  EXPECT_EQ(left.channel, channels_[0].get());
  EXPECT_TRUE(pool_->give_back(left));
  queue_->detach(*channels_[0]);
  channels_[0].reset();
  for (std::uint64_t number = 0; number < 8; ++number) {
    ASSERT_TRUE(send(1, number).ok());
    const Completion received = next();
    EXPECT_EQ(number_in(received), number);
    EXPECT_TRUE(pool_->give_back(received));
  }
  EXPECT_EQ(pool_->posted(), 4);
}

}  // namespace
}  // namespace rdmacomm
