#include "softdev/cm/cm_door.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <string>
#include <utility>

#include "softdev/cm/cm_message.h"
#include "softdev/shared/unix_packet.h"
#include "softdev/tcp/tcp_socket.h"

namespace rdmacomm::softdev {
namespace {

/// An abstract name, hence the zero byte.
constexpr char kNameWithZero[] = "\0rdmacomm/soft0/cm/door";
const std::string kName(kNameWithZero, sizeof(kNameWithZero) - 1);
// One packet with one descriptor each. The bytes say which.
constexpr std::array<std::byte, 1> kTcp = {std::byte{'t'}};
constexpr std::array<std::byte, 1> kRequests = {std::byte{'r'}};

bool is_own_users(int socket) noexcept {
  PeerCredentials peer;
  return peer_credentials(socket, peer) && peer.uid == geteuid();
}

/// Receives the packet `expected` with its descriptor. EAGAIN: it has not arrived yet.
UniqueFd receive_one(int socket, std::array<std::byte, 1> expected) noexcept {
  std::array<std::byte, 1> got{};
  UniqueFd fd;
  const ssize_t length = receive_packet(socket, got, {}, &fd, 0);
  if (length != 1 || got != expected) {
    if (length >= 0) errno = EPROTO;
    return {};
  }
  return fd;
}

}  // namespace

int CmDoor::ask_other() {
  UniqueFd socket = connect_at_once(kName);
  // EAGAIN: many others ask already, because the processes that have the sockets are stopped.
  if (!socket) return errno;
  if (!is_own_users(socket.get())) return EADDRINUSE;
  asking_ = std::move(socket);
  return EINPROGRESS;
}

int CmDoor::get_from_other() {
  if (!tcp_of_other_) tcp_of_other_ = receive_one(asking_.get(), kTcp);
  UniqueFd requests = tcp_of_other_ ? receive_one(asking_.get(), kRequests) : UniqueFd();
  if (!requests) return errno == EAGAIN ? EINPROGRESS : errno;
  tcp_ = std::move(tcp_of_other_);
  requests_ = std::move(requests);
  asking_.reset();
  return 0;
}

int CmDoor::make(const std::optional<TcpAddresses>& addresses) {
  // The name first: it decides which of two processes makes the socket.
  UniqueFd requests = listen_at(kName);
  if (!requests) return errno == EADDRINUSE ? EEXIST : errno;
  TcpAddresses all;
  all.add_all();
  UniqueFd tcp = tcp_listen(kCmPort, UniqueFd(), addresses ? *addresses : all);
  if (!tcp) return errno;
  // Several processes wait for the same sockets, and only one of them gets each connection.
  const int flags = fcntl(requests.get(), F_GETFL);
  if (flags < 0 || fcntl(requests.get(), F_SETFL, flags | O_NONBLOCK) != 0) return errno;
  tcp_ = std::move(tcp);
  requests_ = std::move(requests);
  return 0;
}

int CmDoor::open(const std::optional<TcpAddresses>& addresses) {
  constexpr int kMaxTries = 8;  // another process may make or lose the socket meanwhile
  int error = 0;
  if (asking_) {
    error = get_from_other();
    if (error == 0 || error == EINPROGRESS) return error;
    // The other process has ended, or could not answer. Then asking again at once would be a busy loop.
    stop_asking();
    error = make(addresses);
    return error == EEXIST ? EAGAIN : error;
  }
  for (int tries = 0; tries < kMaxTries; ++tries) {
    error = make(addresses);
    if (error != EEXIST) return error;
    error = ask_other();
    if (error != ECONNREFUSED) return error;
  }
  return EAGAIN;
}

void CmDoor::stop_asking() noexcept {
  asking_.reset();
  tcp_of_other_.reset();
}

void CmDoor::close() noexcept {
  stop_asking();
  tcp_.reset();
  requests_.reset();
}

bool CmDoor::share() const noexcept {
  const UniqueFd other(accept4(requests_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!other) return false;
  if (!is_own_users(other.get())) return true;
  (void)(send_at_once(other.get(), kTcp, {}, tcp_.get()) && send_at_once(other.get(), kRequests, {}, requests_.get()));
  return true;
}

}  // namespace rdmacomm::softdev
