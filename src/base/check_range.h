// check_range.h - checks that the number in an option is within its range.
// Layer: base.
#pragma once

#include <cstdint>
#include <string_view>

#include "rdmacomm/result.h"

namespace rdmacomm {

/// The values that an option may have, both bounds included.
struct Range {
  std::int64_t low;
  std::int64_t high;
  std::string_view unit{};      ///< for the error's text: " ms"
  bool high_of_device = false;  ///< `high` is a limit of the device
};

/// Whether `value` is in `range`.
///
/// name     of the option, as the program knows it: "max_endpoints"
/// Returns  kInvalidArgument: "NAME is VALUE; it must be LOW..HIGH"; kBeyondDeviceLimit: the same, if `value` is above
///          a limit of the device
[[nodiscard]] Status check_range(std::string_view name, std::int64_t value, const Range& range);

}  // namespace rdmacomm
