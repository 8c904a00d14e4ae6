#include "connector/tcp_listen_socket.h"

#include "base/system_call.h"
#include "connector/socket.h"
#include "connector/tcp_connection.h"
#include "verbs/call.h"

namespace rdmacomm {
namespace {

constexpr int kBacklog = 128;  // connections that the system completes before accept() takes them

Error cannot_listen(const SocketAddress& address, std::error_code code) {
  const std::string what = "cannot listen at " + address.to_text();
  if (code == std::errc::address_in_use) {
    return make_error(
        code, what + ": another program listens there; choose another port, or find that program with `ss -ltnp`");
  }
  if (code == std::errc::address_not_available) {
    return make_error(code, what + ": this host does not have that address; see `ip address`");
  }
  if (code == std::errc::permission_denied)
    return make_error(code, what + ": ports below 1024 need CAP_NET_BIND_SERVICE");
  return make_error(code, what);
}

Result<UniqueFd> listen_at(const SocketAddress& address) {
  auto fd = open_socket(address.family());
  if (!fd) return fd;
  const int on = 1;
  const int off = 0;
  // Otherwise bind() to the same port would fail for a minute after a server with clients has ended.
  setsockopt(fd->get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (address.family() == AF_INET6) setsockopt(fd->get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
  if (::bind(fd->get(), address.get(), address.length) != 0 || ::listen(fd->get(), kBacklog) != 0) {
    return cannot_listen(address, last_system_error());
  }
  return fd;
}

Result<UniqueFd> listen_anywhere(std::uint16_t port) {
  auto dual = listen_at(any_address(AF_INET6, port));
  const bool no_ipv6 =
      dual.code() == std::errc::address_family_not_supported || dual.code() == std::errc::address_not_available;
  return no_ipv6 ? listen_at(any_address(AF_INET, port)) : std::move(dual);
}

Result<UniqueFd> listen_at_host(const HostPort& where, const TcpOptions& options, const FindBy& find_by) {
  auto addresses = resolve_by(where, options, find_by);
  if (!addresses) return addresses.error();
  return listen_at(addresses->front());
}

}  // namespace

TcpListenSocket::TcpListenSocket(UniqueFd socket, const TcpOptions& options)
    : socket_(std::move(socket)), options_(options) {}

Result<std::unique_ptr<TcpListenSocket>> TcpListenSocket::listen(const HostPort& where, const TcpOptions& options,
                                                                 const FindBy& find_by) {
  const Status valid = options.validate();
  if (!valid) return valid.error();
  auto fd = where.host.empty() ? listen_anywhere(where.port) : listen_at_host(where, options, find_by);
  if (!fd) return fd.error();
  auto address = SocketAddress::of_local_end(fd->get());
  if (!address) return address.error();
  std::unique_ptr<TcpListenSocket> listener(new TcpListenSocket(std::move(*fd), options));
  listener->port_ = address->port();
  listener->address_ = address->to_text();
  return listener;
}

Result<std::unique_ptr<Connector>> TcpListenSocket::accept() {
  for (;;) {
    UniqueFd fd(
        retry_interrupted([&] { return ::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK); }));
    if (!fd) {
      const std::error_code why = last_system_error();
      if (why == std::errc::operation_would_block) return std::unique_ptr<Connector>();
      if (why == std::errc::connection_aborted) continue;
      return make_error(why, "cannot accept a connection at " + address_);
    }
    auto connector = TcpConnection::adopt(std::move(fd), options_);
    // A client that has already disconnected is no error of the listener.
    if (!connector && connector.code() == std::errc::not_connected) continue;
    if (!connector) return connector.error();
    return std::unique_ptr<Connector>(std::move(*connector));
  }
}

}  // namespace rdmacomm
