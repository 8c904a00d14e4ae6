// wanted_devices.h - the soft devices that the environment requests.
#pragma once

#include <span>

#include "softdev/host/soft_device.h"

namespace rdmacomm::softdev::preload {

/// The devices in RDMACOMM_SOFT0_NAMES (names separated by commas), with the link layer in RDMACOMM_SOFT0_LINK_LAYER
/// ("eth" or "ib") and the number of ports in RDMACOMM_SOFT0_PORTS. They belong to the interfaces in kInterfacesVariable,
/// in the same order. Without names: one device for each interface, or soft0. softdev-run sets and checks these
/// variables. Names beyond the maximum length of a list are ignored.
[[nodiscard]] std::span<const DeviceIdentity> wanted_devices();

}  // namespace rdmacomm::softdev::preload
