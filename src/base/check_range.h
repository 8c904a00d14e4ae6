// check_range.h - an option that is a number, and the numbers that it may be.
// Layer: base.
#pragma once

#include <cstdint>
#include <string_view>

#include "rdmacomm/result.h"

namespace rdmacomm {

/// The numbers that an option may be, both ends included.
struct Range {
  std::int64_t low;
  std::int64_t high;
  std::string_view unit{};      ///< for the error's text: " ms"
  bool high_of_device = false;  ///< `high` is a limit of the device
};

/// Whether `value` is in `range`.
///
/// name     of the option, as the program knows it: "max_endpoints"
/// Returns  kInvalidArgument, or kBeyondDeviceLimit if it is above a limit of the device: "NAME is VALUE; it must be LOW..HIGH"
[[nodiscard]] Status check_range(std::string_view name, std::int64_t value, const Range& range);

}  // namespace rdmacomm
