// tcp_listener.h - where clients knock.
// Layer: connector. Uses: base, verbs.
#pragma once

#include <memory>
#include <string>

#include "rdmacomm/base/result.h"
#include "rdmacomm/base/unique_fd.h"
#include "rdmacomm/connector/tcp_connector.h"
#include "rdmacomm/connector/tcp_options.h"

namespace rdmacomm {

/// A listening TCP socket. A resource: neither copyable nor movable.
/// Threads: accept from one thread at a time; the rest from any.
class TCPListener {
 public:
  /// Listens at `where`: all addresses, IPv6 and IPv4, where where.host is empty.
  ///
  /// Returns  std::errc::address_in_use: another program listens there; kInvalidArgument: options.validate(), or a
  ///          host that has no address; std::errc::address_not_available: the address is not of this host;
  ///          std::errc::permission_denied: a port below 1024 without the right to use it
  /// Waits for the resolver without a deadline where `where.host` is a name (as getaddrinfo(3) does).
  [[nodiscard]] static Result<std::unique_ptr<TCPListener>> listen(const HostPort& where,
                                                                   const TcpOptions& options = {});
  TCPListener(const TCPListener&) = delete;
  TCPListener& operator=(const TCPListener&) = delete;

  /// Takes the next connection, without blocking; nullptr: none waits (any more).
  /// Returns  what the system said, e.g. std::errc::too_many_files_open. The connection then still waits, and fd()
  ///          stays readable: pause before trying again.
  [[nodiscard]] Result<std::unique_ptr<TCPConnector>> accept();

  [[nodiscard]] std::uint16_t port() const noexcept { return port_; }  ///< the real one, also where 0 was asked for
  [[nodiscard]] const std::string& address() const noexcept { return address_; }  ///< "[::]:2020"
  /// Readable while a connection waits.
  [[nodiscard]] int fd() const noexcept { return socket_.get(); }

 private:
  TCPListener(UniqueFd socket, const TcpOptions& options);

  UniqueFd socket_;
  const TcpOptions options_;
  std::uint16_t port_ = 0;
  std::string address_;
};

}  // namespace rdmacomm
