// The public functions for TCP connections.
#include <poll.h>

#include "base/system_call.h"
#include "connector/connector.h"
#include "connector/handshake.h"
#include "connector/tcp_connection.h"
#include "connector/tcp_listen_socket.h"
#include "rdmacomm/connector.h"

namespace rdmacomm {

static_assert(TCPConnector::kMaxMessageBytes == kMaxPayloadBytes);

Result<TCPConnector> TCPConnector::connect(const HostPort& server, const TcpOptions& options) {
  auto connection = TcpConnection::connect(server, options);
  if (!connection) return std::move(connection).error();
  auto peer = (*connection)->exchange_hello(Hello::of_this_process(), options.handshake_timeout);
  if (!peer) return std::move(peer).error();
  return TCPConnector(std::move(connection).value());
}

Status TCPConnector::send_message(std::span<const std::byte> message, Deadline deadline) const {
  return object().send_message(MessageType::kUser, message, deadline);
}

Result<std::vector<std::byte>> TCPConnector::receive_message(Deadline deadline) const {
  return object().receive_message(MessageType::kUser, deadline);
}

Status TCPConnector::sync_with_peer(std::string_view tag, Deadline deadline) const {
  return object().sync_with_peer(tag, deadline);
}

void TCPConnector::close() const {
  object().send_goodbye();
  object().shutdown();
}

const std::string& TCPConnector::peer_address() const {
  return object().peer_address();
}

const std::string& TCPConnector::local_address() const {
  return object().local_address();
}

Result<TCPListener> TCPListener::listen(const HostPort& where, const TcpOptions& options) {
  auto socket = TcpListenSocket::listen(where, options);
  if (!socket) return std::move(socket).error();
  return TCPListener(std::move(socket).value());
}

Result<TCPConnector> TCPListener::accept(Deadline deadline) const {
  TcpListenSocket& socket = object();
  for (;;) {
    auto client = socket.accept();
    if (!client) return std::move(client).error();
    if (*client != nullptr) {
      const Deadline hello_deadline = deadline.sooner(socket.options().handshake_timeout);
      if ((*client)->answer_hello(Hello::of_this_process(), hello_deadline)) return TCPConnector(std::move(*client));
      continue;
    }
    if (deadline.passed()) return make_error(Errc::kTimeout, "no client has connected to " + socket.address());
    pollfd waits{.fd = socket.fd(), .events = POLLIN, .revents = 0};
    (void)::poll(&waits, 1, deadline.poll_timeout_ms());
  }
}

std::uint16_t TCPListener::port() const {
  return object().port();
}

const std::string& TCPListener::address() const {
  return object().address();
}

}  // namespace rdmacomm
