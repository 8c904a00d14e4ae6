// wanted_devices.h - which soft devices the environment asks for.
#pragma once

#include <span>

#include "softdev/host/soft_device.h"

namespace rdmacomm::softdev::preload {

/// The devices by RDMACOMM_SOFT0_NAMES (names with commas between; soft0 where there are none) and
/// RDMACOMM_SOFT0_LINK_LAYER ("eth" or "ib"), as softdev-run sets and checks them. Names beyond the most a list can have
/// are left out.
[[nodiscard]] std::span<const DeviceIdentity> wanted_devices();

}  // namespace rdmacomm::softdev::preload
