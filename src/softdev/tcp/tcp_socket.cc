#include "softdev/tcp/tcp_socket.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <string_view>

#include "base/sanitizer.h"
#include "verbs/gid.h"

namespace rdmacomm::softdev {
namespace {

/// BBR keeps twice the bandwidth-delay product in flight, within one machine about 300 KB. Measured there with messages
/// of 1 MiB, in GB/s: all in one call 2.2, 256 KiB per call 3.8, 128 KiB 4.3, 96 KiB 6.1, 64 KiB 4.2. (CUBIC: 10 in one
/// call, 5.8 with 64 KiB.)
constexpr std::size_t kLongestPacedSend = std::size_t{96} << 10;

void set(int socket, int level, int option, int value) noexcept {
  (void)setsockopt(socket, level, option, &value, sizeof(value));
}

/// Sends small messages at once, and detects a host that has vanished, even if this end only waits for it. The times
/// allow for several lost packets in a row.
void prepare(int socket) noexcept {
  set(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  // A live peer always reads, even while its requests wait. (Linux counts a window that stays closed as no answer.)
  set(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(kVanishedAfter.count()));
  set(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(socket, IPPROTO_TCP, TCP_KEEPIDLE, 2);
  set(socket, IPPROTO_TCP, TCP_KEEPINTVL, 1);
  set(socket, IPPROTO_TCP, TCP_KEEPCNT, 3);
}

UniqueFd bind_in(int family, std::uint16_t port, bool shares) {
  UniqueFd socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return socket;
  if (shares) set(socket.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (family == AF_INET6) set(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
  verbs::SocketAddress any;
  any.storage.ss_family = static_cast<sa_family_t>(family);
  any.length = family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  reinterpret_cast<sockaddr_in&>(any.storage).sin_port = htons(port);  // at the same place in both
  if (bind(socket.get(), any.get(), any.length) != 0) return UniqueFd();
  return socket;
}

/// shares  allows other sockets at this port: sockets of ended connections, and sockets that also allow it and do not
///         listen.
UniqueFd bind_to_all(std::uint16_t port, bool shares) {
  UniqueFd both = bind_in(AF_INET6, port, shares);
  return both || errno == EADDRINUSE ? std::move(both) : bind_in(AF_INET, port, shares);
}

Moved moved(ssize_t result, int at_end) noexcept {
  if (result > 0) return {static_cast<std::size_t>(result), 0};
  if (result == 0) return {0, at_end};
  const bool later = errno == EAGAIN || errno == EINTR;
  return {0, later ? EAGAIN : errno};
}

/// Returns the first pieces, `most` bytes together at most. The last of them may be shortened.
std::span<iovec> first_bytes(std::span<iovec> pieces, std::size_t most) noexcept {
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (pieces[i].iov_len >= most) {
      pieces[i].iov_len = most;
      return pieces.first(i + 1);
    }
    most -= pieces[i].iov_len;
  }
  return pieces;
}

msghdr message_of(std::span<iovec> pieces) noexcept {
  msghdr message{};
  message.msg_iov = pieces.data();
  message.msg_iovlen = pieces.size();
  return message;
}

// The connection orders accesses to an application's memory: from the sender's memory to the receiver's completion. The
// thread sanitizer does not see that. So an atomic counter orders each receive after the sends before it, and raw
// system calls hide the accesses.
#ifdef RDMACOMM_THREAD_SANITIZER
std::atomic<int> messages{0};
#endif

// A single piece is sent with the faster call.
ssize_t send_pieces(int socket, std::span<iovec> pieces) noexcept {
  constexpr int kFlags = MSG_DONTWAIT | MSG_NOSIGNAL;
  const msghdr message = message_of(pieces);
#ifdef RDMACOMM_THREAD_SANITIZER
  messages.fetch_add(1, std::memory_order_acq_rel);
  return syscall(SYS_sendmsg, socket, &message, kFlags);
#else
  if (pieces.size() == 1) return ::send(socket, pieces[0].iov_base, pieces[0].iov_len, kFlags);
  return sendmsg(socket, &message, kFlags);
#endif
}

ssize_t receive_pieces(int socket, std::span<iovec> pieces) noexcept {
  msghdr message = message_of(pieces);
#ifdef RDMACOMM_THREAD_SANITIZER
  const ssize_t result = syscall(SYS_recvmsg, socket, &message, MSG_DONTWAIT);
  messages.fetch_add(1, std::memory_order_acq_rel);
  return result;
#else
  if (pieces.size() == 1) return ::recv(socket, pieces[0].iov_base, pieces[0].iov_len, MSG_DONTWAIT);
  return recvmsg(socket, &message, MSG_DONTWAIT);
#endif
}

}  // namespace

UniqueFd tcp_hold(std::uint16_t port) {
  return bind_to_all(port, false);
}

UniqueFd tcp_listen(std::uint16_t port, UniqueFd held, const TcpAddresses& addresses) {
  UniqueFd socket = held ? std::move(held) : bind_to_all(port, true);
  if (!socket) return socket;
  (void)addresses.apply_to(socket.get());
  if (listen(socket.get(), SOMAXCONN) != 0) return UniqueFd();
  // Allows a later listener while ended connections of this one still hold the port. No other socket can share the port
  // while this one listens.
  set(socket.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  return socket;
}

bool tcp_route_of(int socket, Route& back) noexcept {
  verbs::SocketAddress from;
  from.length = sizeof(from.storage);
  verbs::SocketAddress own;
  own.length = sizeof(own.storage);
  if (getpeername(socket, from.get(), &from.length) != 0) return false;
  if (getsockname(socket, own.get(), &own.length) != 0) return false;
  back = {false, verbs::gid_of(*own.get()), verbs::gid_of(*from.get()), 0};
  if (from.storage.ss_family == AF_INET6) {
    back.interface = reinterpret_cast<const sockaddr_in6&>(from.storage).sin6_scope_id;
  }
  return true;
}

UniqueFd tcp_accept(int listener, Route& back) {
  UniqueFd socket(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket || !tcp_route_of(socket.get(), back)) return UniqueFd();
  prepare(socket.get());
  set(socket.get(), SOL_SOCKET, SO_DETACH_FILTER, 0);  // inherited from the listener; costs time per packet
  return socket;
}

UniqueFd tcp_connect(const Route& route, std::uint16_t port) {
  const verbs::SocketAddress source = verbs::socket_address_of(route.source, 0, route.interface);
  const verbs::SocketAddress target = verbs::socket_address_of(route.target, port, route.interface);
  UniqueFd socket(::socket(target.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return socket;
  prepare(socket.get());
  set(socket.get(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1);
  if (bind(socket.get(), source.get(), source.length) != 0) return UniqueFd();
  if (connect(socket.get(), target.get(), target.length) != 0 && errno != EINPROGRESS) return UniqueFd();
  return socket;
}

void tcp_wake_after(int socket, int bytes) noexcept {
  set(socket, SOL_SOCKET, SO_RCVLOWAT, bytes);
}

std::size_t tcp_longest_send(int socket) noexcept {
  std::array<char, 16> name{};
  auto length = static_cast<socklen_t>(name.size() - 1);
  (void)getsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, name.data(), &length);
  return std::string_view(name.data()).starts_with("bbr") ? kLongestPacedSend : SIZE_MAX;
}

Moved tcp_send(int socket, std::span<iovec> pieces, std::size_t longest) noexcept {
  return moved(send_pieces(socket, first_bytes(pieces, longest)), EAGAIN);
}

Moved tcp_receive(int socket, std::span<iovec> pieces) noexcept {
  return moved(receive_pieces(socket, pieces), EPIPE);
}

}  // namespace rdmacomm::softdev
