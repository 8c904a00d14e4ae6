#include "softdev/preload/wanted_devices.h"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "softdev/host/interface_names.h"

namespace rdmacomm::softdev::preload {
namespace {

std::string_view variable(const char* name) {
  const char* const value = ::secure_getenv(name);
  return value == nullptr ? "" : value;
}

/// The names in RDMACOMM_SOFT0_NAMES; if there are none, those of `count` devices.
std::vector<std::string> read_names(std::size_t count) {
  std::vector<std::string> names;
  std::string_view text = variable("RDMACOMM_SOFT0_NAMES");
  while (!text.empty() && names.size() < DeviceIdentity::kMaxDevices) {
    const std::string_view name = text.substr(0, text.find(','));
    text.remove_prefix(std::min(name.size() + 1, text.size()));
    if (!name.empty()) names.emplace_back(name);
  }
  if (!names.empty()) return names;
  for (unsigned index = 0; index < std::max<std::size_t>(count, 1); ++index) names.push_back(default_name(index));
  return names;
}

std::vector<DeviceIdentity> read() {
  std::vector<DeviceIdentity> devices;
  const bool infiniband = variable("RDMACOMM_SOFT0_LINK_LAYER") == "ib";
  const std::string_view wanted_ports = variable("RDMACOMM_SOFT0_PORTS");
  unsigned ports = 1;
  if (wanted_ports.size() == 1 && wanted_ports[0] >= '1' && wanted_ports[0] <= '0' + char{DeviceIdentity::kMaxPorts})
    ports = static_cast<unsigned>(wanted_ports[0] - '0');
  const std::vector<std::string> interfaces = wanted_interfaces();
  for (std::string& name : read_names(interfaces.size())) {
    const std::size_t index = devices.size();
    devices.push_back({.name = std::move(name),
                       .index = static_cast<unsigned>(index),
                       .infiniband = infiniband,
                       .ports = ports,
                       .interface = index < interfaces.size() ? interfaces[index] : std::string()});
  }
  return devices;
}

}  // namespace

std::span<const DeviceIdentity> wanted_devices() {
  static const std::vector<DeviceIdentity> devices = read();
  return devices;
}

}  // namespace rdmacomm::softdev::preload
