// port_claim.h - the ports of a port space, which all processes of a host share.
//
// Each port of an identifier is the abstract name of a UNIX socket. So no process keeps a table, and a port is free again
// when its process has ended. The rules are those of rdma_cm in the kernel. Identifiers may share a port if they have
// different addresses, or if all of them allow it (RDMA_OPTION_ID_REUSEADDR) and at most one of them listens.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "softdev/cm/cm_address.h"

namespace rdmacomm::softdev {

/// A port that an identifier has. It has none by default.
class PortClaim {
 public:
  /// Takes a port, and frees the previous one.
  /// address  its port: 0 takes any free one, and sets it. Its address must be one of this host, or any
  /// shares   with other identifiers that share it, until one of them listens
  /// is_ipv6_only  for the IPv6 address "any": do not take the port for IPv4, too
  /// Returns  0, or an errno value. EADDRINUSE: another identifier, of this or another process, has it.
  [[nodiscard]] int take(std::uint16_t port_space, CmAddress& address, bool shares, bool is_ipv6_only);
  /// From now on, other identifiers' connections arrive at socket(). Returns 0, or an errno value. EADDRINUSE: another
  /// identifier that shares the port listens already.
  [[nodiscard]] int listen();
  void release() noexcept { socket_.reset(); }

  /// -1: it has no port.
  [[nodiscard]] int socket() const noexcept { return socket_.get(); }

 private:
  [[nodiscard]] int take_port(std::uint16_t port, bool shares);

  UniqueFd socket_;
  std::uint16_t port_space_ = 0;
  CmAddress address_;
  bool is_shared_ = false;
  bool is_ipv6_only_ = false;
};

/// The names of the sockets at which an identifier may listen for connections to `target`: the most special one first.
[[nodiscard]] std::vector<std::string> listener_names(std::uint16_t port_space, const CmAddress& target);

/// Connects to the listener for `target` on this host. PortClaim lets only one listen for an address, but any process may
/// bind any name. If several listeners have different owners, this user's is chosen, then root's, and otherwise none:
/// the request has a secret and the program's bytes.
/// Returns  a non-blocking socket. Not valid, and errno on failure. ECONNREFUSED: there is none, or none that may be
///          chosen. EAGAIN: its process has not accepted earlier connections yet.
[[nodiscard]] UniqueFd connect_to_listener(std::uint16_t port_space, const CmAddress& target);

}  // namespace rdmacomm::softdev
