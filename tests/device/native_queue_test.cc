#include "device/native_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <thread>
#include <vector>

#include "device/device_core.h"
#include "support/fake_verbs.h"

namespace rdmacomm {
namespace {

using rdmacomm::testing::FakeVerbs;
using ::testing::HasSubstr;

class CompletionQueueTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto opened = DeviceCore::open_from(FakeVerbs::api(), {});
    ASSERT_TRUE(opened.has_value()) << opened.error().message();
    device_ = std::move(opened).value();
  }
  std::unique_ptr<NativeQueue> make(const NativeQueueOptions& options) {
    auto made = NativeQueue::create(*device_, options);
    EXPECT_TRUE(made.has_value()) << made.error().message();
    return std::move(made).value();
  }
  static bool readable(int fd) {
    pollfd waiting{fd, POLLIN, 0};
    return ::poll(&waiting, 1, 0) == 1;
  }

  FakeVerbs fake_;
  std::shared_ptr<DeviceCore> device_;
};

TEST_F(CompletionQueueTest, HasTheRequestedDepth) {
  const auto queue = make({.depth = 77});
  EXPECT_EQ(queue->depth(), 77);
  EXPECT_EQ(queue->fd(), -1);
}

TEST_F(CompletionQueueTest, DepthOutsideTheDevicesRangeIsRefused) {
  EXPECT_EQ(NativeQueue::create(*device_, {.depth = 0}).code(), Errc::kInvalidArgument);
  EXPECT_EQ(NativeQueue::create(*device_, {.depth = -1}).code(), Errc::kInvalidArgument);
  const auto too_deep = NativeQueue::create(*device_, {.depth = 4097});
  EXPECT_EQ(too_deep.code(), Errc::kBeyondDeviceLimit);
  EXPECT_EQ(too_deep.error().context, "the depth of a completion queue is 4097; it must be 1..4096 on this device");
  EXPECT_TRUE(NativeQueue::create(*device_, {.depth = 4096}).has_value());
}

TEST_F(CompletionQueueTest, FailuresOfTheDeviceAreReturnedAndNothingLeaks) {
  const int before = fake_.live();
  for (const char* verb : {"create_comp_channel", "create_cq"}) {
    fake_.fail(verb, ENOMEM);
    const auto failed = NativeQueue::create(*device_, {.with_channel = true});
    EXPECT_EQ(failed.code(), std::errc::not_enough_memory) << verb;
    EXPECT_THAT(failed.error().context, HasSubstr("fake0")) << verb;
    EXPECT_EQ(fake_.live(), before) << verb;
  }
}

TEST_F(CompletionQueueTest, ReservationsNeverExceedTheDepth) {
  const auto queue = make({.depth = 100});
  EXPECT_TRUE(queue->reserve(60).ok());
  const Status full = queue->reserve(41);
  EXPECT_EQ(full.code(), Errc::kCompletionQueueFull);
  EXPECT_THAT(full.error().context, HasSubstr("of depth 100 has room for 40 more requests, but a queue pair needs 41"));
  EXPECT_TRUE(queue->reserve(40).ok());
  EXPECT_EQ(queue->reserve(1).code(), Errc::kCompletionQueueFull);
  queue->release(60);
  EXPECT_TRUE(queue->reserve(60).ok());
}

TEST_F(CompletionQueueTest, GrowsUpToTheLimitOfTheDevice) {
  const auto queue = make({.depth = 100, .may_grow = true});
  EXPECT_TRUE(queue->reserve(100).ok());
  EXPECT_EQ(queue->depth(), 100);
  EXPECT_TRUE(queue->reserve(1).ok());
  EXPECT_EQ(queue->depth(), 200);
  EXPECT_TRUE(queue->reserve(900).ok());
  EXPECT_EQ(queue->depth(), 1001);
  EXPECT_TRUE(queue->reserve(2000).ok());
  EXPECT_EQ(queue->depth(), 3001);
  EXPECT_TRUE(queue->reserve(1095).ok());
  EXPECT_EQ(queue->depth(), 4096);
  const Status full = queue->reserve(1);
  EXPECT_EQ(full.code(), Errc::kCompletionQueueFull);
  EXPECT_THAT(full.error().context, HasSubstr("of depth 4096 has room for 0 more requests"));
  queue->release(1);
  EXPECT_TRUE(queue->reserve(1).ok());
}

TEST_F(CompletionQueueTest, IfTheDeviceCannotResizeTheErrorSaysSo) {
  const auto queue = make({.depth = 100, .may_grow = true});
  fake_.fail("resize_cq", EOPNOTSUPP);
  const Status full = queue->reserve(101);
  EXPECT_EQ(full.code(), Errc::kCompletionQueueFull);
  EXPECT_THAT(full.error().context, HasSubstr("the device cannot make it deeper"));
  EXPECT_EQ(queue->depth(), 100);
  EXPECT_TRUE(queue->reserve(100).ok());
}

TEST_F(CompletionQueueTest, ConcurrentReservationsShareTheRoomExactly) {
  const auto queue = make({.depth = 1000});
  std::atomic<int> granted{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 100; ++i) granted += queue->reserve(7).ok() ? 1 : 0;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(granted, 1000 / 7);
}

TEST_F(CompletionQueueTest, ArmingNeedsAChannel) {
  EXPECT_EQ(make({})->arm(), Errc::kNotSupported);
  const auto queue = make({.with_channel = true});
  EXPECT_TRUE(queue->arm());
  EXPECT_EQ(fake_.armed, 1);
  fake_.fail("req_notify_cq", EIO);
  EXPECT_EQ(queue->arm(), std::errc::io_error);
}

TEST_F(CompletionQueueTest, ConsumingEventsNeverBlocks) {
  const auto queue = make({.with_channel = true});
  queue->consume_events();
  EXPECT_FALSE(readable(queue->fd()));
  for (int i = 0; i < 3; ++i) fake_.raise_event(queue->get());
  EXPECT_TRUE(readable(queue->fd()));
  queue->consume_events();
  EXPECT_FALSE(readable(queue->fd()));
}

TEST_F(CompletionQueueTest, EventsAreAcknowledgedInBatchesAndAtTheEnd) {
  auto queue = make({.with_channel = true});
  for (int i = 0; i < 10; ++i) fake_.raise_event(queue->get());
  queue->consume_events();
  EXPECT_EQ(fake_.calls("ack_cq_events"), 0);
  for (int i = 0; i < 60; ++i) fake_.raise_event(queue->get());
  queue->consume_events();
  EXPECT_EQ(fake_.calls("ack_cq_events"), 1);
  EXPECT_EQ(fake_.acknowledged_events, 70U);
  fake_.raise_event(queue->get());
  queue->consume_events();
  queue.reset();
  EXPECT_EQ(fake_.acknowledged_events, 71U);  // else destroy_cq would wait forever
}

TEST_F(CompletionQueueTest, WithoutAChannelThereIsNothingToConsume) {
  const auto queue = make({});
  queue->consume_events();
  EXPECT_EQ(fake_.calls("get_cq_event"), 0);
}

}  // namespace
}  // namespace rdmacomm
