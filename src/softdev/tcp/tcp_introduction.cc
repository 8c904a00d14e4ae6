#include "softdev/tcp/tcp_introduction.h"

#include <cerrno>
#include <cstddef>

#include "softdev/tcp/tcp_socket.h"

namespace rdmacomm::softdev {

int TcpIntroduction::send_greeting(int socket) noexcept {
  if (is_sent()) return 0;
  TcpGreeting greeting = greeting_;
  iovec rest{reinterpret_cast<std::byte*>(&greeting) + sent_, sizeof(greeting) - sent_};
  const Moved moved = tcp_send(socket, {&rest, 1});
  sent_ += moved.bytes;
  return moved.error;
}

std::optional<TcpWelcome> TcpIntroduction::welcome(int socket) noexcept {
  TcpWelcome welcome;
  iovec place{&welcome, sizeof(welcome)};
  const Moved received = tcp_receive(socket, {&place, 1});
  if (received.error == EAGAIN) return {};
  // A welcome is sent in one piece, and is so short that it arrives in one piece.
  const bool is_other_version = received.bytes >= offsetof(TcpWelcome, answer) && welcome.version != kTcpVersion;
  if (welcome.magic == kTcpMagic && is_other_version) {
    welcome.answer = Welcome::kRefused;
  } else if (received.bytes != sizeof(welcome) || welcome.magic != kTcpMagic) {
    welcome.answer = Welcome::kSoon;
  }
  return welcome;
}

}  // namespace rdmacomm::softdev
