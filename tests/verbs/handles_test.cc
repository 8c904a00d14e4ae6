#include "verbs/handles.h"

#include <gtest/gtest.h>

#include "support/fake_verbs.h"

namespace rdmacomm::verbs {
namespace {

using rdmacomm::testing::FakeDevice;
using rdmacomm::testing::FakeVerbs;

class HandlesTest : public ::testing::Test {
 protected:
  FakeVerbs fake_;
  const Api& api_ = FakeVerbs::api();
};

TEST_F(HandlesTest, ReleasesOnceAtTheEndOfItsLife) {
  {
    const ContextHandle context(api_, api_.open_device(fake_.devices[0].get()));
    const PdHandle pd(api_, api_.alloc_pd(context.get()));
    EXPECT_TRUE(context);
    EXPECT_EQ(fake_.live(), 2);
  }
  EXPECT_EQ(fake_.live(), 0);
  EXPECT_EQ(fake_.calls("dealloc_pd"), 1);
  EXPECT_EQ(fake_.calls("close_device"), 1);
}

TEST_F(HandlesTest, MovesTheOwnership) {
  ContextHandle first(api_, api_.open_device(fake_.devices[0].get()));
  ContextHandle second(std::move(first));
  ContextHandle third;
  EXPECT_FALSE(third);
  third = std::move(second);
  EXPECT_TRUE(third);
  EXPECT_EQ(fake_.calls("close_device"), 0);
  third.reset();
  EXPECT_FALSE(third);
  EXPECT_EQ(fake_.calls("close_device"), 1);
}

TEST_F(HandlesTest, AssigningReleasesTheOldObject) {
  ContextHandle context(api_, api_.open_device(fake_.devices[0].get()));
  context = ContextHandle(api_, api_.open_device(fake_.devices[0].get()));
  EXPECT_EQ(fake_.live(), 1);
}

TEST_F(HandlesTest, AnEmptyHandleReleasesNothing) {
  { const QpHandle empty; }
  { const MrHandle null(api_, nullptr); }
  EXPECT_EQ(fake_.calls("destroy_qp") + fake_.calls("dereg_mr"), 0);
}

TEST_F(HandlesTest, AFailedReleaseIsLoggedAndNotRepeated) {
  fake_.fail("close_device", EBUSY);
  ibv_context* raw = api_.open_device(fake_.devices[0].get());
  ::testing::internal::CaptureStderr();
  { const ContextHandle context(api_, raw); }
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("cannot release a verbs object"), std::string::npos) << log;
  EXPECT_EQ(fake_.calls("close_device"), 1);
  EXPECT_EQ(api_.close_device(raw), 0);
}

TEST_F(HandlesTest, DeviceListShowsTheDevices) {
  fake_.devices.push_back(std::make_unique<FakeDevice>("fake1"));
  const DeviceList list(api_);
  ASSERT_EQ(list.size(), 2);
  EXPECT_STREQ(list[0]->name, "fake0");
  EXPECT_STREQ(list[1]->name, "fake1");
}

TEST_F(HandlesTest, AMachineWithoutRdmaHasAnEmptyList) {
  fake_.fail("get_device_list", ENOSYS);
  const DeviceList list(api_);
  EXPECT_EQ(list.size(), 0);
}

}  // namespace
}  // namespace rdmacomm::verbs
