#include "session/check_way.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/fake_verbs.h"

namespace rdmacomm {
namespace {

using rdmacomm::testing::FakeVerbs;
using ::testing::HasSubstr;

/// fake0 has two ports, and a GID table of RoCE v2 10.0.0.1, RoCE v1 10.0.0.1 and RoCE v2 10.0.0.2.
class CheckWay : public ::testing::Test {
 protected:
  CheckWay() {
    fake_.devices[0]->add_port(IBV_PORT_ACTIVE);
    fake_.devices[0]->add_gid("\0\0\0\0\0\0\0\0\0\0\xff\xff\x0a\0\0\1", IBV_GID_TYPE_ROCE_V1);
    fake_.devices[0]->add_gid("\0\0\0\0\0\0\0\0\0\0\xff\xff\x0a\0\0\2", IBV_GID_TYPE_ROCE_V2);
  }
  static Status check(const DeviceOptions& asked, const RdmaWay& chosen) {
    const auto device = DeviceCore::open_from(FakeVerbs::api(), asked);
    if (!device) return device.status();
    return check_way(chosen, **device, "10.0.0.1:7 with 10.0.0.9:2020");
  }
  FakeVerbs fake_;
};

TEST_F(CheckWay, UnsetFieldsAcceptAnyWay) {
  for (const int index : {0, 1, 2}) {
    const Status followed = check({}, {.device = "fake0", .port = 1, .gid_index = index});
    EXPECT_TRUE(followed.ok()) << followed.message();
  }
}

TEST_F(CheckWay, TheRequestedWayIsAccepted) {
  EXPECT_TRUE(check({.port = 2, .gid_index = 1}, {.device = "fake0", .port = 2, .gid_index = 1}).ok());
  EXPECT_TRUE(check({.gid_type = GidType::kRoceV1}, {.device = "fake0", .port = 1, .gid_index = 1}).ok());
  EXPECT_TRUE(
      check({.gid_index = 2, .gid_type = GidType::kRoceV2}, {.device = "fake0", .port = 1, .gid_index = 2}).ok());
}

TEST_F(CheckWay, WithoutGidsNothingIsCompared) {
  EXPECT_TRUE(check({.gid_index = 1, .gid_type = GidType::kRoceV1}, {.device = "fake0", .port = 1}).ok());
}

TEST_F(CheckWay, AnotherDeviceOrPortIsRefusedWithBoth) {
  const Status device = check({}, {.device = "fake7", .port = 1});
  EXPECT_EQ(device.code(), Errc::kInvalidArgument);
  EXPECT_THAT(device.message(), HasSubstr("connects 10.0.0.1:7 with 10.0.0.9:2020 by the device fake7"));
  EXPECT_THAT(device.message(), HasSubstr("uses fake0: choose the right device (DeviceOptions::name)"));
  const Status port = check({}, {.device = "fake0", .port = 2});
  EXPECT_EQ(port.code(), Errc::kInvalidArgument);
  EXPECT_THAT(port.message(), HasSubstr("by port 2 of fake0"));
  EXPECT_THAT(port.message(), HasSubstr("uses port 1: choose the right port (DeviceOptions::port)"));
}

TEST_F(CheckWay, AnotherGidThanRequestedIsRefusedWithBoth) {
  const Status other = check({.gid_index = 2}, {.device = "fake0", .port = 1, .gid_index = 0});
  EXPECT_EQ(other.code(), Errc::kInvalidArgument);
  EXPECT_THAT(other.message(), HasSubstr("by GID index 0 ::ffff:10.0.0.1 (RoCE v2) of fake0"));
  EXPECT_THAT(other.message(), HasSubstr("the local session requires GID index 2 ::ffff:10.0.0.2 (RoCE v2)"));
  EXPECT_THAT(other.message(), HasSubstr("ConnectorKind::kTcp"));
}

TEST_F(CheckWay, AnotherGidTypeThanRequestedIsRefusedWithBoth) {
  const Status other = check({.gid_type = GidType::kRoceV1}, {.device = "fake0", .port = 1, .gid_index = 2});
  EXPECT_EQ(other.code(), Errc::kInvalidArgument);
  EXPECT_THAT(other.message(), HasSubstr("by GID index 2 ::ffff:10.0.0.2 (RoCE v2)"));
  EXPECT_THAT(other.message(), HasSubstr("requires GID type RoCE v1"));
  const Status gone = check({.gid_type = GidType::kRoceV1}, {.device = "fake0", .port = 1, .gid_index = 9});
  EXPECT_THAT(gone.message(), HasSubstr("by GID index 9, which is empty"));
}

}  // namespace
}  // namespace rdmacomm
