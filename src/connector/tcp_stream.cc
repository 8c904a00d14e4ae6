#include "connector/tcp_stream.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/system_call.h"
#include "connector/socket.h"

namespace rdmacomm {
namespace {

Transfer moved(ssize_t count) {
  if (count < 0) return {.error = last_system_error()};
  return {.bytes = static_cast<std::size_t>(count)};
}

}  // namespace

Result<std::unique_ptr<ByteStream>> TcpStream::adopt(UniqueFd socket, const TcpOptions& options) {
  const Status set = set_up_socket(socket.get(), options);
  if (!set) return set.error();
  auto local = SocketAddress::of_local_end(socket.get());
  if (!local) return local.error();
  auto peer = SocketAddress::of_peer(socket.get());
  if (!peer) return peer.error();
  std::unique_ptr<TcpStream> stream(new TcpStream(std::move(socket)));
  stream->local_address_ = local->to_text();
  stream->peer_address_ = peer->to_text();
  stream->local_gid_ = local->as_gid();
  return std::unique_ptr<ByteStream>(std::move(stream));
}

Transfer TcpStream::receive(std::span<std::byte> room) {
  return moved(retry_interrupted([&] { return ::recv(socket_.get(), room.data(), room.size(), MSG_DONTWAIT); }));
}

Transfer TcpStream::send(std::span<const std::byte> bytes) {
  return moved(retry_interrupted(
      [&] { return ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT); }));
}

void TcpStream::await_input(Deadline deadline) {
  [[maybe_unused]] const Waited waited = wait_for(socket_.get(), POLLIN, -1, deadline);
}

bool TcpStream::await_room(Deadline deadline) {
  return wait_for(socket_.get(), POLLOUT, -1, deadline) != Waited::kTimeout;
}

bool TcpStream::ended() {
  pollfd asked = {socket_.get(), POLLRDHUP, 0};
  return ::poll(&asked, 1, 0) > 0;
}

void TcpStream::end_sending() noexcept {
  ::shutdown(socket_.get(), SHUT_WR);
}

void TcpStream::shut_down(LastBytes /*last*/) noexcept {
  ::shutdown(socket_.get(), SHUT_RDWR);
}

WatchedFd TcpStream::watched() const noexcept {
  return {.fd = socket_.get(), .events = EPOLLRDHUP};
}

}  // namespace rdmacomm
