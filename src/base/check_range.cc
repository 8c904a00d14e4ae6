#include "base/check_range.h"

#include <string>

namespace rdmacomm {

Status check_range(std::string_view name, std::int64_t value, const Range& range) {
  if (value >= range.low && value <= range.high) return {};
  const bool beyond_device = range.high_of_device && value > range.high;
  return make_error(beyond_device ? Errc::kBeyondDeviceLimit : Errc::kInvalidArgument,
                    std::string(name) + " is " + std::to_string(value) + std::string(range.unit) + "; it must be " +
                        std::to_string(range.low) + ".." + std::to_string(range.high) + std::string(range.unit) +
                        (range.high_of_device ? " on this device" : ""));
}

}  // namespace rdmacomm
