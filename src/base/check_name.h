// check_name.h - which names a channel, a region, a queue or a thread may have.
// Layer: base.
#pragma once

#include <cstddef>
#include <string_view>

#include "rdmacomm/result.h"

namespace rdmacomm {

inline constexpr std::size_t kMaxNameBytes = 64;

/// ok, or kInvalidArgument with the reason: names are 1..kMaxNameBytes printable ASCII characters.
[[nodiscard]] Status check_name(std::string_view what, std::string_view name);

}  // namespace rdmacomm
