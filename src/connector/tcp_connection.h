// tcp_connection.h - a connection to a peer by TCP.
// Layer: connector. Uses: base.   Messages: handshake.h
#pragma once

#include <memory>

#include "base/unique_fd.h"
#include "connector/connector.h"
#include "rdmacomm/connector.h"
#include "rdmacomm/result.h"

namespace rdmacomm {

/// A Connector over a TCP socket. Through it the peers exchange the addresses of their queue pairs, and connect these
/// by the addresses. It works with every kind of device except iWARP.
class TcpConnection final : public Connector {
 public:
  /// Connects to a server. Tries every address of the host in turn, and repeats this while they refuse, until
  /// options.connect_timeout has passed: the server may start later than its client.
  ///
  /// cancel_fd  becomes readable (and stays so) to give up; -1: none
  /// Returns    std::errc::connection_refused: no program listens there; kTimeout: no answer at all;
  ///            kInvalidArgument: options.validate(), or a host that has no address; kStopped: cancel_fd;
  ///            std::errc::operation_not_permitted: a priority that needs CAP_NET_ADMIN; else the system's error
  /// The lookup of a name counts towards that time. A thread that waits for the resolver may outlive the call
  /// (getaddrinfo(3) has no deadline); it ends by itself.
  [[nodiscard]] static Result<std::unique_ptr<TcpConnection>> connect(const HostPort& server,
                                                                      const TcpOptions& options = {},
                                                                      int cancel_fd = -1);
  /// Takes over a connected TCP socket and sets it up as `options` say.
  [[nodiscard]] static Result<std::unique_ptr<TcpConnection>> adopt(UniqueFd socket, const TcpOptions& options);

 private:
  using Connector::Connector;
};

}  // namespace rdmacomm
