// host_address.h - the addresses of a host.
// Layer: connector. Uses: base, verbs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rdmacomm/connector.h"
#include "rdmacomm/deadline.h"
#include "rdmacomm/qp_address.h"
#include "rdmacomm/result.h"

namespace rdmacomm {

/// One address of a host. A value.
struct HostAddress {
  Gid gid{};                ///< IPv4 in its mapped form
  std::uint32_t scope = 0;  ///< of a link-local IPv6 address: index of the interface; else 0
  std::string text{};       ///< "10.0.0.1", "2001:db8::1", "fe80::1%eth0"

  /// Whether it is 0.0.0.0 or ::, which for a listener means every local address.
  [[nodiscard]] bool is_any() const noexcept;
};

/// The addresses of a host, in the order in which TcpConnection::connect tries them; at least one.
///
/// cancel_fd  becomes readable to give up; -1: none
/// Returns    kInvalidArgument: the host has no address, or `where.host` is empty or a link-local address without its
///            interface;
///            std::errc::resource_unavailable_try_again: no name server answered, or none by `deadline`; kStopped
[[nodiscard]] Result<std::vector<HostAddress>> find_addresses(const HostPort& where, Deadline deadline,
                                                              int cancel_fd = -1);

/// The same for a client: while the lookup fails temporarily, it is repeated until `deadline`.
[[nodiscard]] Result<std::vector<HostAddress>> find_server(const HostPort& server, Deadline deadline,
                                                           int cancel_fd = -1);

}  // namespace rdmacomm
