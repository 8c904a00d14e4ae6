// interface_names.h - the network interfaces that soft devices belong to, from the environment.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace rdmacomm::softdev {

/// Reads names of network interfaces, separated by commas: "eth0,lo". An empty name means that the device at this place
/// belongs to no interface. An empty text has no names.
/// Returns  false: a name that the system does not allow, a name that appears twice, or more than
///          DeviceIdentity::kMaxDevices names. Then `names` is unchanged.
[[nodiscard]] bool read_interface_names(std::string_view text, std::vector<std::string>& names);

/// The names in kInterfacesVariable. None if the variable is not set, if its value is invalid, or if the program has
/// more rights than its user.
[[nodiscard]] std::vector<std::string> wanted_interfaces();

}  // namespace rdmacomm::softdev
