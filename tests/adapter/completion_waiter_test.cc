#include "rdmacomm/adapter/completion_waiter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <thread>

#include "rdmacomm/device/rdma_device.h"
#include "support/fake_verbs.h"

namespace rdmacomm {
namespace {

using namespace std::chrono_literals;
using rdmacomm::testing::FakeVerbs;

class CompletionWaiterTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto opened = RDMADevice::open_from(FakeVerbs::api(), {});
    ASSERT_TRUE(opened.has_value());
    device_ = std::move(opened).value();
    auto queue = CompletionQueue::create(*device_, {.with_channel = true});
    ASSERT_TRUE(queue.has_value());
    queue_ = std::move(queue).value();
  }
  std::unique_ptr<CompletionWaiter> make(PollingMode mode) {
    auto waiter = CompletionWaiter::create(mode, *queue_);
    EXPECT_TRUE(waiter.has_value());
    return std::move(waiter).value();
  }
  // How long one wait() took that was allowed `limit`.
  static Deadline::Clock::duration wait(CompletionWaiter& waiter, Deadline::Clock::duration limit) {
    const auto start = Deadline::Clock::now();
    waiter.wait(Deadline::after(limit));
    return Deadline::Clock::now() - start;
  }

  FakeVerbs fake_;
  std::unique_ptr<RDMADevice> device_;
  std::unique_ptr<CompletionQueue> queue_;
};

TEST_F(CompletionWaiterTest, BusyPollingNeedsNoPreparationAndNeverSleeps) {
  const auto waiter = make(PollingMode::kBusyPoll);
  EXPECT_FALSE(waiter->prepare());
  for (int i = 0; i < 5000; ++i) waiter->wait(Deadline::never());
  waiter->wake();
  EXPECT_EQ(fake_.armed, 0);
}

TEST_F(CompletionWaiterTest, SleepingNeedsAChannel) {
  auto queue = CompletionQueue::create(*device_, {});
  ASSERT_TRUE(queue.has_value());
  EXPECT_EQ(CompletionWaiter::create(PollingMode::kCompletionChannel, **queue).code(), Errc::kNotSupported);
  EXPECT_TRUE(CompletionWaiter::create(PollingMode::kBusyPoll, **queue).has_value());
}

TEST_F(CompletionWaiterTest, SleepingArmsAndAsksForAnotherPoll) {
  const auto waiter = make(PollingMode::kCompletionChannel);
  EXPECT_TRUE(waiter->prepare());
  EXPECT_EQ(fake_.armed, 1);
}

TEST_F(CompletionWaiterTest, SleepsUntilTheDeadline) {
  const auto waiter = make(PollingMode::kCompletionChannel);
  ASSERT_TRUE(waiter->prepare());
  EXPECT_GE(wait(*waiter, 20ms), 20ms);
}

TEST_F(CompletionWaiterTest, AnEventEndsTheSleepAndIsConsumed) {
  const auto waiter = make(PollingMode::kCompletionChannel);
  ASSERT_TRUE(waiter->prepare());
  fake_.raise_event(queue_->get());
  EXPECT_LT(wait(*waiter, 10s), 5s);
  pollfd waiting{queue_->fd(), POLLIN, 0};
  EXPECT_EQ(::poll(&waiting, 1, 0), 0);
}

TEST_F(CompletionWaiterTest, WakeEndsTheSleepOfAnotherThread) {
  const auto waiter = make(PollingMode::kCompletionChannel);
  ASSERT_TRUE(waiter->prepare());
  std::thread waker([&] { waiter->wake(); });
  EXPECT_LT(wait(*waiter, 10s), 5s);
  waker.join();
}

TEST_F(CompletionWaiterTest, AWakeBeforeTheSleepIsNotLostAndCountsOnce) {
  const auto waiter = make(PollingMode::kCompletionChannel);
  waiter->wake();
  waiter->wake();
  ASSERT_TRUE(waiter->prepare());
  EXPECT_LT(wait(*waiter, 10s), 5s);
  ASSERT_TRUE(waiter->prepare());
  EXPECT_GE(wait(*waiter, 20ms), 20ms);
}

TEST_F(CompletionWaiterTest, AQueueThatCannotBeArmedIsPolledInstead) {
  const auto waiter = make(PollingMode::kCompletionChannel);
  fake_.fail("req_notify_cq", EIO);
  EXPECT_TRUE(waiter->prepare());
  EXPECT_LT(wait(*waiter, 10s), 5s);
}

}  // namespace
}  // namespace rdmacomm
