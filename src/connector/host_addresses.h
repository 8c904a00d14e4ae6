// host_addresses.h - converts the result of a lookup to its public form. Private to the library.
#pragma once

#include <vector>

#include "connector/host_address.h"
#include "connector/socket.h"

namespace rdmacomm {

[[nodiscard]] std::vector<HostAddress> as_host_addresses(const std::vector<SocketAddress>& resolved);

}  // namespace rdmacomm
