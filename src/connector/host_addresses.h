// host_addresses.h - what a lookup has found, as callers see it. Private to the library.
#pragma once

#include <vector>

#include "connector/host_address.h"
#include "connector/socket.h"

namespace rdmacomm {

[[nodiscard]] std::vector<HostAddress> as_host_addresses(const std::vector<SocketAddress>& resolved);

}  // namespace rdmacomm
