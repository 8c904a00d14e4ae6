#include "softdev/shared/unix_packet.h"

#include <poll.h>
#include <sys/time.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace rdmacomm::softdev {
namespace {

constexpr int kBacklog = 128;

struct AbstractAddress {
  sockaddr_un address{};
  socklen_t length = 0;
  explicit AbstractAddress(const std::string& name) {
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, name.data(), std::min(name.size(), sizeof(address.sun_path)));
    length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
  }
  [[nodiscard]] const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
};

UniqueFd packet_socket() {
  return UniqueFd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
}

/// The limit applies to connecting, too.
void bound_sends(int socket, timeval limit) {
  setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
}

bool send_with(int flags, int socket, std::span<const std::byte> head, std::span<const std::byte> payload,
               int fd) noexcept {
  iovec parts[2] = {{const_cast<std::byte*>(head.data()), head.size()},
                    {const_cast<std::byte*>(payload.data()), payload.size()}};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = payload.empty() ? 1 : 2;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  if (fd >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(rights), &fd, sizeof(fd));
  }
  ssize_t sent = 0;
  do {
    sent = sendmsg(socket, &message, MSG_NOSIGNAL | flags);
  } while (sent < 0 && errno == EINTR);
  return sent >= 0;
}

/// The descriptor that was passed with `message`, which has room for one.
UniqueFd passed_with(msghdr& message) noexcept {
  UniqueFd fd;
  for (cmsghdr* each = CMSG_FIRSTHDR(&message); each != nullptr; each = CMSG_NXTHDR(&message, each)) {
    if (each->cmsg_level != SOL_SOCKET || each->cmsg_type != SCM_RIGHTS) continue;
    int passed = -1;
    std::memcpy(&passed, CMSG_DATA(each), sizeof(passed));
    fd.reset(passed);
  }
  return fd;
}

}  // namespace

UniqueFd bind_to(const std::string& name) {
  UniqueFd fd = packet_socket();
  const AbstractAddress at(name);
  if (!fd || bind(fd.get(), at.get(), at.length) != 0) return {};
  return fd;
}

UniqueFd listen_at(const std::string& name) {
  UniqueFd fd = bind_to(name);
  if (!fd || listen(fd.get(), kBacklog) != 0) return {};
  return fd;
}

UniqueFd connect_to(const std::string& name) {
  UniqueFd fd = packet_socket();
  const AbstractAddress at(name);
  if (!fd) return {};
  // Another user may have the name and never accept. So this timeout is shorter than that for a peer's answer.
  bound_sends(fd.get(), {0, 250'000});
  if (connect(fd.get(), at.get(), at.length) != 0) {
    if (errno == EAGAIN) errno = ETIMEDOUT;
    return {};
  }
  bound_sends(fd.get(), {5, 0});
  return fd;
}

UniqueFd connect_at_once(const std::string& name) {
  UniqueFd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const AbstractAddress at(name);
  if (!fd || connect(fd.get(), at.get(), at.length) != 0) return {};
  return fd;
}

bool peer_credentials(int socket, PeerCredentials& credentials) noexcept {
  ucred found{};
  socklen_t length = sizeof(found);
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &found, &length) != 0) return false;
  credentials = {found.pid, found.uid};
  return true;
}

bool send_at_once(int socket, std::span<const std::byte> head, std::span<const std::byte> payload, int fd) noexcept {
  return send_with(MSG_DONTWAIT, socket, head, payload, fd);
}

bool send_packet(int socket, std::span<const std::byte> head, std::span<const std::byte> payload, int fd) noexcept {
  return send_with(0, socket, head, payload, fd);
}

ssize_t receive_packet(int socket, std::span<std::byte> head, std::span<std::byte> payload, UniqueFd* fd,
                       int timeout_ms) noexcept {
  if (timeout_ms > 0) {
    pollfd wait{socket, POLLIN, 0};
    int ready = 0;
    do {
      ready = ::poll(&wait, 1, timeout_ms);
    } while (ready < 0 && errno == EINTR);
    if (ready == 0) errno = ETIMEDOUT;
    if (ready <= 0) return -1;
  }
  iovec parts[2] = {{head.data(), head.size()}, {payload.data(), payload.size()}};
  // Exactly one descriptor fits. If there were more room, the kernel would pass more descriptors, and this process
  // would have to close them.
  alignas(cmsghdr) char control[CMSG_LEN(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = payload.empty() ? 1 : 2;
  if (fd != nullptr) {
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
  }
  ssize_t received = 0;
  do {
    received = recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  } while (received < 0 && errno == EINTR);
  if (received < 0) return received;
  UniqueFd passed = passed_with(message);
  if ((message.msg_flags & MSG_CTRUNC) != 0) {
    errno = fd == nullptr || passed ? EPROTO : EMFILE;
    return -1;
  }
  if (fd != nullptr && passed) *fd = std::move(passed);
  return received;
}

}  // namespace rdmacomm::softdev
