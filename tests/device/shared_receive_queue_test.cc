#include "device/shared_receive_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "device/device_core.h"
#include "support/fake_verbs.h"

namespace rdmacomm {
namespace {

using rdmacomm::testing::FakeVerbs;
using ::testing::HasSubstr;

class SharedReceiveQueueTest : public ::testing::Test {
 protected:
  std::shared_ptr<DeviceCore> open(int max_srq = 10) {
    fake_.devices[0]->attributes.max_srq = max_srq;
    fake_.devices[0]->attributes.max_srq_wr = 512;
    auto opened = DeviceCore::open_from(FakeVerbs::api(), {});
    EXPECT_TRUE(opened.has_value()) << opened.error().message();
    return std::move(opened).value();
  }

  FakeVerbs fake_;
};

TEST_F(SharedReceiveQueueTest, ADeviceWithoutThemNamesTheAlternative) {
  const auto device = open(0);
  const auto refused = SharedReceiveQueue::create(*device, {});
  EXPECT_EQ(refused.code(), Errc::kNotSupported);
  EXPECT_THAT(refused.error().context, HasSubstr("max_srq is 0"));
  EXPECT_THAT(refused.error().context, HasSubstr("post receives on each channel"));
  EXPECT_THAT(refused.error().context, HasSubstr(device->name()));
}

TEST_F(SharedReceiveQueueTest, ValuesOutsideTheDevicesRangeAreRefused) {
  const auto device = open();
  for (const int depth : {0, -1}) {
    EXPECT_EQ(SharedReceiveQueue::create(*device, {.depth = depth}).code(), Errc::kInvalidArgument);
  }
  const auto too_deep = SharedReceiveQueue::create(*device, {.depth = 513});
  EXPECT_EQ(too_deep.code(), Errc::kBeyondDeviceLimit);
  EXPECT_THAT(too_deep.error().context, HasSubstr("is 513; it must be 1..512"));
  EXPECT_EQ(SharedReceiveQueue::create(*device, {.depth = 1, .max_slices = 9}).code(), Errc::kBeyondDeviceLimit);
  EXPECT_TRUE(SharedReceiveQueue::create(*device, {.depth = 512, .max_slices = 8}).has_value());
}

TEST_F(SharedReceiveQueueTest, ErrorsOfTheDeviceAreReturnedAndNothingLeaks) {
  const auto device = open();
  const int before = fake_.live();
  fake_.fail("create_srq", ENOMEM);
  EXPECT_EQ(SharedReceiveQueue::create(*device, {.depth = 4}).code(), std::errc::not_enough_memory);
  {
    const auto queue = SharedReceiveQueue::create(*device, {.depth = 4}).value();
    EXPECT_TRUE(queue->arm_limit(3).ok());
    EXPECT_EQ(fake_.srq_limits, std::vector<std::uint32_t>{3});
    fake_.fail("modify_srq", EINVAL);
    const Status refused = queue->arm_limit(2);
    EXPECT_EQ(refused.code(), std::errc::invalid_argument);
    EXPECT_THAT(refused.error().context, HasSubstr("limit of a shared receive queue to 2"));
  }
  EXPECT_EQ(fake_.live(), before);
}

}  // namespace
}  // namespace rdmacomm
