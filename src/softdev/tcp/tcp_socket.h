// tcp_socket.h - non-blocking TCP sockets between the addresses that GIDs are.
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

/// Connecting, and everything that waits for a host which may be gone, is given this long at the least: TCP sends a lost packet
/// again after 0.2 s, 0.6 s, 1.4 s and 3 s, the first one of a connection after 1 s and 3 s.
inline constexpr std::chrono::milliseconds kVanishedAfter{5000};

/// Takes `port` of all addresses: nobody else gets it, and nobody is listened to. Not valid, and errno: EADDRINUSE, somebody has it,
/// if only for connections that ended a moment ago.
[[nodiscard]] UniqueFd tcp_hold(std::uint16_t port);
/// Listens at `port` of these addresses, by `held` where that is what tcp_hold() gave. Not valid, and errno.
[[nodiscard]] UniqueFd tcp_listen(std::uint16_t port, UniqueFd held, const TcpAddresses& addresses);
/// The next who has connected, and the way back to it. Not valid, and errno.
[[nodiscard]] UniqueFd tcp_accept(int listener, Route& back);
/// A socket that is being connected, from `route.source` to `port` of `route.target`; whether it is, sending will show.
/// Not valid, and errno.
[[nodiscard]] UniqueFd tcp_connect(const Route& route, std::uint16_t port);
/// Has epoll tell of the socket when so many bytes are there, or fewer where there is no room for so many, or its end.
void tcp_wake_after(int socket, int bytes) noexcept;

/// How much one call of tcp_send() gives this socket at the best: SIZE_MAX, or, where its congestion control keeps little under way,
/// less than that. A call holds the socket, and what acknowledges the bytes before, so that the next ones may go, waits until it ends.
[[nodiscard]] std::size_t tcp_longest_send(int socket) noexcept;

/// longest  no more bytes than that by one call
[[nodiscard]] Moved tcp_send(int socket, std::span<iovec> pieces, std::size_t longest = SIZE_MAX) noexcept;
[[nodiscard]] Moved tcp_receive(int socket, std::span<iovec> pieces) noexcept;

}  // namespace rdmacomm::softdev
