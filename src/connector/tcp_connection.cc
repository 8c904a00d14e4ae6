// TcpConnection::connect: tries all addresses of a host repeatedly until one accepts.
#include "connector/tcp_connection.h"

#include <poll.h>

#include "base/system_call.h"
#include "connector/address_rounds.h"
#include "connector/socket.h"
#include "connector/tcp_stream.h"
#include "verbs/call.h"

namespace rdmacomm {
namespace {

std::error_code socket_error(int fd) {
  int number = 0;
  socklen_t length = sizeof(number);
  if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &number, &length) != 0) return last_system_error();
  return verbs::os_error(number);
}

/// A client that retries a local port without a listener may get that port as its own source port. TCP then connects
/// the socket to itself.
bool connected_to_itself(int fd) {
  const auto local = SocketAddress::of_local_end(fd);
  const auto peer = SocketAddress::of_peer(fd);
  return local && peer && local->to_text() == peer->to_text();
}

/// The result of a connect() that did not complete at once.
std::error_code await_outcome(int fd, int cancel_fd, Deadline deadline) {
  const Waited waited = wait_for(fd, POLLOUT, cancel_fd, deadline);
  if (waited == Waited::kCancelled) return Errc::kStopped;
  if (waited == Waited::kTimeout) return Errc::kTimeout;
  return socket_error(fd);
}

/// Returns errors without a context; explained() adds it.
Result<UniqueFd> try_one(const SocketAddress& address, const TcpOptions& options, int cancel_fd, Deadline deadline) {
  auto fd = open_socket(address.family());
  if (!fd) return fd;
  if (Status set = mark_socket(fd->get(), options); !set) return set.error();
  std::error_code failed;
  if (::connect(fd->get(), address.get(), address.length) != 0) {
    failed = last_system_error();
    const bool under_way = failed == std::errc::operation_in_progress || failed == std::errc::interrupted;
    if (under_way) failed = await_outcome(fd->get(), cancel_fd, deadline);
  }
  if (!failed && connected_to_itself(fd->get())) failed = std::make_error_code(std::errc::connection_refused);
  if (failed) return make_error(failed, "");
  return fd;
}

Error explained(const Error& error, const AddressRounds& rounds) {
  if (error.code == Errc::kStopped) return rounds.stopped();
  const std::string gave_up = may_connect_later(error.code) ? "; " + rounds.gave_up() : "";
  if (!error.context.empty()) return make_error(error.code, error.context + gave_up);
  if (error.code == std::errc::connection_refused) {
    return make_error(error.code, "no server listens at " + rounds.where() + gave_up);
  }
  if (error.code == Errc::kTimeout || error.code == std::errc::timed_out) {
    return make_error(Errc::kTimeout, "no answer from " + rounds.where() + gave_up +
                                          "; check that the host is up and that no firewall blocks the port");
  }
  const bool no_way = error.code == std::errc::network_unreachable || error.code == std::errc::host_unreachable ||
                      error.code == std::errc::network_down || error.code == std::errc::address_not_available;
  return make_error(
      error.code,
      "cannot connect to " + rounds.where() + gave_up +
          (no_way ? "; check that the network of this host is up and that a route to the server exists" : ""));
}

}  // namespace

Result<std::unique_ptr<TcpConnection>> TcpConnection::connect(const HostPort& server, const TcpOptions& options,
                                                              int cancel_fd) {
  AddressRounds rounds(server, options, cancel_fd);
  auto fd = rounds.run<UniqueFd>(
      [&](const SocketAddress& address, Deadline deadline) { return try_one(address, options, cancel_fd, deadline); });
  if (!fd) return explained(fd.error(), rounds);
  return adopt(std::move(*fd), options);
}

Result<std::unique_ptr<TcpConnection>> TcpConnection::adopt(UniqueFd socket, const TcpOptions& options) {
  auto stream = TcpStream::adopt(std::move(socket), options);
  if (!stream) return stream.error();
  return std::unique_ptr<TcpConnection>(new TcpConnection(std::move(*stream)));
}

}  // namespace rdmacomm
