// remote_path.h - "HOST:PATH" and "HOST:PORT:PATH".
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

/// HOST:PATH, HOST:PORT:PATH or [IPV6]:PATH. What has a '/' before its first ':', or no ':', is a path of this machine:
/// empty.
/// Returns  kInvalidArgument: as parse_host
[[nodiscard]] Result<std::optional<RemotePath>> parse_remote_path(std::string_view word);

}  // namespace rdmacomm::copying
