// unix_packet.h - packets with descriptors over a UNIX socket.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include <cstddef>
#include <span>
#include <string>

#include "base/unique_fd.h"

namespace rdmacomm::softdev {

/// A socket bound to an abstract name and listening. Not valid, and errno: EADDRINUSE, somebody has the name.
[[nodiscard]] UniqueFd listen_at(const std::string& name);
/// A socket bound to an abstract name that nobody can connect to. Not valid, and errno.
[[nodiscard]] UniqueFd bind_to(const std::string& name);
/// A socket connected to an abstract name. Not valid, and errno: ECONNREFUSED, nobody has it; ETIMEDOUT: its owner does not accept.
[[nodiscard]] UniqueFd connect_to(const std::string& name);

/// Who is at the other end of a connected socket.
struct PeerCredentials {
  pid_t pid = 0;  ///< as seen from here; 0: in a process namespace that cannot be seen from here
  uid_t uid = 0;
};
[[nodiscard]] bool peer_credentials(int socket, PeerCredentials& credentials) noexcept;

/// Sends `head` and `payload` as one packet, with `fd` where it is not -1, if there is room for it now; else false and errno: EAGAIN.
[[nodiscard]] bool send_at_once(int socket, std::span<const std::byte> head, std::span<const std::byte> payload = {},
                                int fd = -1) noexcept;

/// The same, but waits for room: on a socket that connect_to() has made for 5 s at most, on others for as long as it takes.
[[nodiscard]] bool send_packet(int socket, std::span<const std::byte> head, std::span<const std::byte> payload = {},
                               int fd = -1) noexcept;

/// Receives one packet: its first head.size() bytes, the rest into `payload`, a descriptor into `*fd` (nullptr: it must have none).
/// Returns the packet's length, 0 at the end of the connection, -1 and errno otherwise (ETIMEDOUT: nothing came
/// within timeout_ms; 0 does not wait: EAGAIN; EMFILE: no descriptor was free for the one that came, all else is here; EPROTO: it had
/// more descriptors than that, none of which is kept).
[[nodiscard]] ssize_t receive_packet(int socket, std::span<std::byte> head, std::span<std::byte> payload, UniqueFd* fd,
                                     int timeout_ms) noexcept;

}  // namespace rdmacomm::softdev
