// device_scan.h - opens devices and reads the facts for the choice among them. Private to the device layer.
#pragma once

#include <infiniband/verbs.h>

#include <optional>
#include <string>
#include <vector>

#include "device/addressing.h"
#include "verbs/handles.h"

namespace rdmacomm {

/// One device, opened or not.
struct ScannedDevice {
  const verbs::Api* api = nullptr;
  verbs::ContextHandle context{};  ///< empty: not to be opened, or it could not be opened
  DeviceFacts facts{};
  std::optional<Error> failure{};  ///< why it could not be opened or read
};

/// The devices of one table. If `name` is not empty, only that device is opened, and for the others only the name is
/// set.
[[nodiscard]] std::vector<ScannedDevice> scan_devices(const verbs::Api& api, const std::string& name);

[[nodiscard]] Transport transport_of(const verbs::Api& api, const ibv_context& context,
                                     const ibv_port_attr& port) noexcept;
/// A port's GID table without its empty entries.
[[nodiscard]] std::vector<GidEntry> read_gids(const verbs::Api& api, ibv_context* context, std::uint8_t port,
                                              const ibv_port_attr& attributes);

}  // namespace rdmacomm
