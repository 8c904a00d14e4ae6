// tcp_input.h - bytes that have come by a connection and were not looked at yet.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstring>
#include <span>
#include <vector>

#include "softdev/tcp/tcp_socket.h"

namespace rdmacomm::softdev {

/// A buffer before a socket, so that many short messages cost one system call; long ones go past it.
/// Threads: one at a time.
class TcpInput {
 public:
  static constexpr std::size_t kUsual = 128 * 1024;  ///< bytes
  static constexpr std::size_t kFirst = 4 * 1024;    ///< bytes, of a connection of which little has come

  TcpInput(int socket, std::size_t bytes) : socket_(socket), bytes_(bytes) {}

  [[nodiscard]] int socket() const noexcept { return socket_; }

  /// From here on the socket may have something again.
  void begin_round() noexcept { drained_ = false; }
  [[nodiscard]] std::size_t available() const noexcept { return end_ - begin_; }
  /// Bytes of the buffer.
  [[nodiscard]] std::size_t room() const noexcept { return bytes_.size(); }
  [[nodiscard]] std::byte* data() noexcept { return bytes_.data() + begin_; }
  void consume(std::size_t bytes) noexcept { begin_ += bytes; }
  /// Throws away up to `most` of what is available. How much.
  std::size_t skip(std::size_t most) noexcept;
  /// The same, and from the socket where nothing is.
  [[nodiscard]] Moved throw_away(std::size_t most);
  template <typename Message>
  void take(Message& message) noexcept {
    std::memcpy(static_cast<void*>(&message), data(), sizeof(message));
    consume(sizeof(message));
  }

  /// Gets more bytes, at least one, to have `needed` available; `exactly`: none that follow these. 0; EAGAIN: there are none for
  /// now; others as tcp_receive() has them. A buffer of kFirst bytes or more that a read has filled grows, up to kUsual.
  [[nodiscard]] int fill(std::size_t needed, bool exactly = false);
  /// For messages of `length`. The buffer grows with what has come, not with what is announced.
  void make_room(std::size_t length);
  /// For many messages at a time.
  void widen() {
    if (bytes_.size() < kFirst) bytes_.resize(kFirst);
  }
  /// To close a socket with something unread would take back what was sent by it last. So it is read until the other end has
  /// closed: a piece at each call, however much comes. false: it has closed, or has sent more than `most` bytes in all calls.
  [[nodiscard]] bool linger(std::size_t most = SIZE_MAX);
  /// Brings at most `most` bytes to `places`: what is available, else from the socket, and with the last of them up to `ahead` of
  /// what follows (to here).
  [[nodiscard]] Moved move(std::span<iovec> places, std::size_t most, std::size_t ahead = 0) noexcept;

 private:
  const int socket_;
  [[nodiscard]] Moved receive(std::span<const iovec> places, std::size_t wanted, std::size_t ahead) noexcept;

  std::vector<std::byte> bytes_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  bool is_too_small_ = false;  // more might have come by one read
  std::size_t lingered_ = 0;   // bytes that linger() has read
  bool drained_ = false;       // there was less in the socket than was asked for
};

}  // namespace rdmacomm::softdev
