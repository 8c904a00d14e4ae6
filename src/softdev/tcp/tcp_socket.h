// tcp_socket.h - non-blocking TCP sockets between addresses given as GIDs.
#pragma once

#include <infiniband/verbs.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <chrono>
#include <cstdint>
#include <span>

#include "base/unique_fd.h"
#include "softdev/common/moved.h"
#include "softdev/host/route.h"
#include "softdev/tcp/tcp_addresses.h"

namespace rdmacomm::softdev {

/// Minimum timeout for connecting and for every wait for a host that may be gone. TCP sends a lost packet again after
/// 0.2 s, 0.6 s, 1.4 s and 3 s, and the first packet of a connection after 1 s and 3 s.
inline constexpr std::chrono::milliseconds kVanishedAfter{5000};

/// Holds `port` at all addresses: no other socket gets it, and connections to it are refused. Not valid, and errno on
/// failure. EADDRINUSE: another socket has it, possibly only for connections that have just ended.
[[nodiscard]] UniqueFd tcp_hold(std::uint16_t port);
/// Listens at `port` of these addresses. Uses `held` if it is a socket from tcp_hold(). Not valid, and errno on
/// failure.
[[nodiscard]] UniqueFd tcp_listen(std::uint16_t port, UniqueFd held, const TcpAddresses& addresses);
/// Accepts the next connection; `back` is the route to its peer. Not valid, and errno on failure.
[[nodiscard]] UniqueFd tcp_accept(int listener, Route& back);
/// The route to the peer of a connection that another process has accepted. Returns false: `socket` is not connected.
[[nodiscard]] bool tcp_route_of(int socket, Route& back) noexcept;
/// Starts a connection from `route.source` to `port` of `route.target`. A later send shows if it was established. Not
/// valid, and errno on failure.
[[nodiscard]] UniqueFd tcp_connect(const Route& route, std::uint16_t port);
/// Makes epoll report the socket when `bytes` bytes have arrived, when fewer have arrived but no more fit, or at its
/// end.
void tcp_wake_after(int socket, int bytes) noexcept;

/// The number of bytes per tcp_send() call with the best throughput: SIZE_MAX, or less if the socket's congestion
/// control keeps few bytes in flight. A call locks the socket. The acknowledgements that allow the next bytes to be
/// sent are processed only after it.
[[nodiscard]] std::size_t tcp_longest_send(int socket) noexcept;

/// longest  the maximum number of bytes per call
[[nodiscard]] Moved tcp_send(int socket, std::span<iovec> pieces, std::size_t longest = SIZE_MAX) noexcept;
[[nodiscard]] Moved tcp_receive(int socket, std::span<iovec> pieces) noexcept;

}  // namespace rdmacomm::softdev
