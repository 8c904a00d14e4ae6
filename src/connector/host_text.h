// host_text.h - parses hosts as users write them: "node7", "node7:2020", "[::1]:2020".
// Layer: connector. Uses: base.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "rdmacomm/result.h"

namespace rdmacomm {

/// A host, and its port if the text has one. A value.
struct HostText {
  std::string host = {};
  std::optional<std::uint16_t> port = {};
};

/// HOST or HOST:PORT. IPv6 addresses with a port are written in brackets.
/// Returns  kInvalidArgument: the context tells what is wrong, without the text itself
[[nodiscard]] Result<HostText> parse_host(std::string_view text);

}  // namespace rdmacomm
