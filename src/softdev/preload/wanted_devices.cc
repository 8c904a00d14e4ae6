#include "softdev/preload/wanted_devices.h"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "rdmacomm/softdev.h"

namespace rdmacomm::softdev::preload {
namespace {

std::string_view variable(const char* name) {
  const char* const value = ::secure_getenv(name);
  return value == nullptr ? "" : value;
}

std::vector<DeviceIdentity> read() {
  std::vector<DeviceIdentity> devices;
  const bool infiniband = variable("RDMACOMM_SOFT0_LINK_LAYER") == "ib";
  const std::string_view wanted_ports = variable("RDMACOMM_SOFT0_PORTS");
  unsigned ports = 1;
  if (wanted_ports.size() == 1 && wanted_ports[0] >= '1' && wanted_ports[0] <= '0' + char{DeviceIdentity::kMaxPorts})
    ports = static_cast<unsigned>(wanted_ports[0] - '0');
  std::string_view names = variable("RDMACOMM_SOFT0_NAMES");
  if (names.empty()) names = kDeviceName;
  while (!names.empty() && devices.size() < DeviceIdentity::kMaxDevices) {
    const std::string_view name = names.substr(0, names.find(','));
    names.remove_prefix(std::min(name.size() + 1, names.size()));
    if (name.empty()) continue;
    devices.push_back({.name = std::string(name),
                       .index = static_cast<unsigned>(devices.size()),
                       .infiniband = infiniband,
                       .ports = ports});
  }
  return devices;
}

}  // namespace

std::span<const DeviceIdentity> wanted_devices() {
  static const std::vector<DeviceIdentity> devices = read();
  return devices;
}

}  // namespace rdmacomm::softdev::preload
