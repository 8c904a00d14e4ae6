// view_counters.h - the files with counters in the view: their names, and the current text of each.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "softdev/host/soft_device.h"

namespace rdmacomm::softdev::preload {

/// The names in the folders `counters` and `hw_counters` of a port.
[[nodiscard]] std::span<const std::string_view> port_counters() noexcept;
[[nodiscard]] std::span<const std::string_view> hardware_counters() noexcept;

/// True if the last part of a path is the name of a counter. Programs open files in signal handlers, so this function
/// calls no function that is not safe there.
[[nodiscard]] bool names_counter(std::string_view path) noexcept;

/// The number that a counter has now.
/// name  a path like "/sys/class/infiniband/soft0/ports/1/counters/port_xmit_data"
/// Returns  no value: no counter of these devices, or its number cannot be read now.
[[nodiscard]] std::optional<std::string> counter_text(std::string_view name, std::span<const DeviceIdentity> devices);

}  // namespace rdmacomm::softdev::preload
