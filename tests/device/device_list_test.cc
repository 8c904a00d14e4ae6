#include <gtest/gtest.h>

#include <set>

#include "rdmacomm/device.h"
#include "softdev/common/api.h"

namespace rdmacomm {
namespace {

TEST(DeviceList, EndsWithTheSoftwareDevice) {
  const std::vector<DeviceInfo> devices = list_devices();
  ASSERT_FALSE(devices.empty());
  EXPECT_EQ(devices.back().name, softdev::kDeviceName);
  EXPECT_TRUE(devices.back().is_software);
}

TEST(DeviceList, NamesEachDeviceOnceAndHardwareFirst) {
  std::set<std::string> names;
  bool software_seen = false;
  for (const DeviceInfo& device : list_devices()) {
    EXPECT_TRUE(names.insert(device.name).second) << device.name;
    EXPECT_FALSE(software_seen && !device.is_software) << device.name;
    software_seen = software_seen || device.is_software;
  }
}

}  // namespace
}  // namespace rdmacomm
