// device_list.h - hardware and software devices in one list.
// Layer: device. Uses: base, verbs, softdev.
#pragma once

#include <string>
#include <vector>

#include "rdmacomm/base/result.h"
#include "rdmacomm/verbs/api.h"

namespace rdmacomm {

/// What can be opened. A value.
struct DeviceInfo {
  std::string name;                        ///< for RDMADevice::open: "mlx5_0", "rxe0", "soft0"
  const verbs::Api* api;                   ///< the table that opens it
  [[nodiscard]] bool is_software() const;  ///< whether it is the software device of this library
};

/// All devices, hardware (and the kernel's rxe and siw) first, then soft0. Never empty. Cost: system calls.
[[nodiscard]] std::vector<DeviceInfo> list_devices();

}  // namespace rdmacomm
