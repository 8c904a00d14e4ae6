// tcp_listen_socket.h - accepts connections by TCP.
// Layer: connector. Uses: base.
#pragma once

#include <memory>
#include <string>

#include "base/unique_fd.h"
#include "connector/listener.h"
#include "connector/lookup.h"
#include "rdmacomm/connector.h"
#include "rdmacomm/result.h"

namespace rdmacomm {

/// A listening TCP socket.
class TcpListenSocket final : public Listener {
 public:
  /// Listens at `where`. If where.host is empty: at all addresses, IPv6 and IPv4.
  ///
  /// Returns  std::errc::address_in_use: another program listens there; kInvalidArgument: options.validate(), or a host
  ///          that has no address; std::errc::address_not_available: the address is not of this host;
  ///          std::errc::permission_denied: a port below 1024 without the right to use it
  /// As FindBy: no name server answered, or none in time; kStopped
  [[nodiscard]] static Result<std::unique_ptr<TcpListenSocket>> listen(const HostPort& where,
                                                                       const TcpOptions& options = {},
                                                                       const FindBy& find_by = {});
  [[nodiscard]] Result<std::unique_ptr<Connector>> accept() override;
  [[nodiscard]] std::uint16_t port() const noexcept override { return port_; }
  [[nodiscard]] const std::string& address() const noexcept override { return address_; }
  [[nodiscard]] int fd() const noexcept override { return socket_.get(); }
  [[nodiscard]] const TcpOptions& options() const noexcept { return options_; }

 private:
  TcpListenSocket(UniqueFd socket, const TcpOptions& options);

  UniqueFd socket_;
  const TcpOptions options_;
  std::uint16_t port_ = 0;
  std::string address_;
};

}  // namespace rdmacomm
