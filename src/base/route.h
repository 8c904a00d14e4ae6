// route.h - asks the kernel from which address packets to a peer leave. Private to the library.
#pragma once

#include <sys/socket.h>

#include "rdmacomm/result.h"

namespace rdmacomm {

/// Returns the local address from which packets to `peer`, IPv4 or IPv6, leave. Sends nothing and needs no privilege.
///
/// length  bytes at `peer`
/// Returns  std::errc::network_unreachable or a similar code: no route. The context is empty; the caller sets it
[[nodiscard]] Result<sockaddr_storage> source_towards(const sockaddr* peer, socklen_t length);

}  // namespace rdmacomm
