// Events of soft0's port, as the library reports them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "device/device_core.h"
#include "device/device_events.h"
#include "softdev/common/api.h"
#include "support/own_network.h"

namespace rdmacomm {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class PortEventsSeen final {
 public:
  void operator()(const DeviceEvent& event) {
    types.push_back(event.native_handle().event_type);
    EXPECT_FALSE(event.failure()) << "ends nothing";
  }
  std::vector<ibv_event_type> types;
};

TEST(SoftPortEvents, AreShownAndLoggedAndEndNoEndpoint) {
  const testing::OwnNetwork network;
  if (!network.why_not().empty()) GTEST_SKIP() << network.why_not();
  network.ip("link set lo up");
  const auto device = DeviceCore::open_from(softdev::api());
  ASSERT_TRUE(device) << device.error().message();
  DeviceEvents& events = (*device)->events();
  PortEventsSeen subscriber;
  const auto subscription = events.subscribe(std::ref(subscriber));
  ASSERT_TRUE(subscription) << subscription.error().message();
  ::testing::internal::CaptureStderr();
  network.ip("address add 10.9.1.1/32 dev lo");
  events.take();
  network.ip("link set lo down");
  network.ip("link set lo up");
  events.take();
  const std::string log = ::testing::internal::GetCapturedStderr();
  // The link's addresses may be removed and added with it; this may remain unnoticed.
  EXPECT_GE(std::erase(subscriber.types, IBV_EVENT_GID_CHANGE), 1U);
  EXPECT_THAT(subscriber.types, ElementsAre(IBV_EVENT_PORT_ERR, IBV_EVENT_PORT_ACTIVE));
  EXPECT_THAT(log, HasSubstr("soft0 port 1 has lost its link"));
  EXPECT_TRUE(events.health().ok());
}

TEST(SoftPortEvents, APortThatIsDownIsNotChosen) {
  const testing::OwnNetwork network;
  if (!network.why_not().empty()) GTEST_SKIP() << network.why_not();
  const auto device = DeviceCore::open_from(softdev::api());
  ASSERT_FALSE(device);
  EXPECT_THAT(device.error().message(), HasSubstr("soft0"));
}

}  // namespace
}  // namespace rdmacomm
