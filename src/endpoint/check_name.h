// check_name.h - what may be a name of a channel, a region, a queue or a thread.
// Layer: endpoint.
#pragma once

#include <string_view>

#include "rdmacomm/config.h"
#include "rdmacomm/result.h"

namespace rdmacomm {

/// ok, or kInvalidArgument with the reason: names are 1..HcaConfig::kMaxNameBytes printable ASCII characters.
[[nodiscard]] Status check_name(std::string_view what, std::string_view name);

}  // namespace rdmacomm
