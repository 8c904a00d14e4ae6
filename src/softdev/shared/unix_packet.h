// unix_packet.h - packets with descriptors over a UNIX socket.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include <cstddef>
#include <span>
#include <string>

#include "base/unique_fd.h"

namespace rdmacomm::softdev {

/// A socket that is bound to an abstract name and listens. Not valid, and errno on failure; EADDRINUSE: the name is
/// taken.
[[nodiscard]] UniqueFd listen_at(const std::string& name);
/// A socket that is bound to an abstract name and accepts no connections. Not valid, and errno on failure.
[[nodiscard]] UniqueFd bind_to(const std::string& name);
/// A socket that is connected to an abstract name. Not valid, and errno on failure; ECONNREFUSED: no socket has the
/// name; ETIMEDOUT: its owner does not accept.
[[nodiscard]] UniqueFd connect_to(const std::string& name);
/// The same, but does not wait; EAGAIN: its owner has not accepted earlier connections yet.
[[nodiscard]] UniqueFd connect_at_once(const std::string& name);

/// The process that a connected socket leads to.
struct PeerCredentials {
  pid_t pid = 0;  ///< as seen from this process; 0: in a process namespace that is not visible here
  uid_t uid = 0;
};
[[nodiscard]] bool peer_credentials(int socket, PeerCredentials& credentials) noexcept;

/// Sends `head` and `payload` as one packet, with `fd` unless it is -1. Does not wait: false and errno EAGAIN if the
/// socket has no room.
[[nodiscard]] bool send_at_once(int socket, std::span<const std::byte> head, std::span<const std::byte> payload = {},
                                int fd = -1) noexcept;

/// The same, but waits for room: at most 5 s on a socket from connect_to(), without a limit on others.
[[nodiscard]] bool send_packet(int socket, std::span<const std::byte> head, std::span<const std::byte> payload = {},
                               int fd = -1) noexcept;

/// Receives one packet: its first head.size() bytes into `head`, the rest into `payload`, a descriptor into `*fd`
/// (nullptr: the packet must have none).
/// timeout_ms  0: does not wait.
/// Returns  the packet's length; 0 at the end of the connection; -1 and errno otherwise.
/// Errors  ETIMEDOUT: no packet within timeout_ms. EAGAIN: no packet, and timeout_ms is 0. EMFILE: the packet was
///         received, but this process has no free number for the descriptor in it. EPROTO: the packet had more
///         descriptors; none of them is kept.
[[nodiscard]] ssize_t receive_packet(int socket, std::span<std::byte> head, std::span<std::byte> payload, UniqueFd* fd,
                                     int timeout_ms) noexcept;

}  // namespace rdmacomm::softdev
