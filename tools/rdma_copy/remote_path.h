// remote_path.h - parses "HOST:PATH" and "HOST:PORT:PATH".
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "connector/host_text.h"
#include "rdmacomm/result.h"

namespace rdmacomm::copying {

/// A path on a server. A value.
struct RemotePath {
  HostText host = {};
  std::string path = {};
};

/// HOST:PATH, HOST:PORT:PATH or [IPV6]:PATH. A word with a '/' before its first ':', or without ':', is a local path;
/// the result is then empty.
/// Returns  kInvalidArgument: as parse_host
[[nodiscard]] Result<std::optional<RemotePath>> parse_remote_path(std::string_view word);

}  // namespace rdmacomm::copying
