#include <gtest/gtest.h>

#include "rdmacomm/session.h"

namespace rdmacomm {
namespace {

const DeviceOptions kSoft{.name = "soft0"};

TEST(OpenDevice, TowardsAServerOnThisHost) {
  const auto device = open_device(kSoft, {.address = {.host = "127.0.0.1"}});
  ASSERT_TRUE(device) << device.status().message();
  EXPECT_EQ((*device).name(), "soft0");
}

TEST(OpenDevice, ForAServerEverywhereOrAtAnAddress) {
  for (const char* host : {"", "0.0.0.0", "::", "127.0.0.1"}) {
    const auto device = open_device(kSoft, {.address = {.host = host}, .is_server = true});
    EXPECT_TRUE(device) << host << ": " << device.status().message();
  }
}

TEST(OpenDevice, AHostWithoutAnAddressIsReported) {
  // Without a name server the lookup fails only temporarily: the host may have an address later.
  const auto device = open_device(
      kSoft, {.address = {.host = "300.1.2.3.4.invalid."}, .find_by = Deadline::after(std::chrono::milliseconds(1))});
  ASSERT_FALSE(device);
  EXPECT_NE(device.status().message().find("300.1.2.3.4.invalid."), std::string::npos);
}

TEST(OpenDevice, ByRdmaCmTheSoftwareDeviceIsNotPicked) {
  const auto device = open_device({}, {.address = {.host = "127.0.0.1"}, .connector = ConnectorKind::kCm});
  if (device) GTEST_SKIP() << "there is hardware here: " << (*device).to_text();
  EXPECT_EQ(device.code(), Errc::kNoActivePort);
  EXPECT_NE(device.status().message().find("rdma_cm does not support"), std::string::npos) << device.status().message();
}

}  // namespace
}  // namespace rdmacomm
