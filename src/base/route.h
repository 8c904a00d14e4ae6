// route.h - asking the kernel's routing by which address packets leave. Private to the library.
#pragma once

#include <sys/socket.h>

#include "rdmacomm/result.h"

namespace rdmacomm {

/// This host's address from which packets to `peer`, IPv4 or IPv6, leave. Sends nothing and needs no privilege.
///
/// length  of what `peer` points to
/// Returns  std::errc::network_unreachable and its like: there is no route; the context is for the caller to add
[[nodiscard]] Result<sockaddr_storage> source_towards(const sockaddr* peer, socklen_t length);

}  // namespace rdmacomm
