// tcp_input.h - buffers received bytes of a connection.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstring>
#include <span>
#include <vector>

#include "softdev/tcp/tcp_socket.h"

namespace rdmacomm::softdev {

/// A buffer for a socket: one system call can read several short messages. Long messages bypass it.
/// Threads: one at a time.
class TcpInput {
 public:
  static constexpr std::size_t kUsual = 128 * 1024;  ///< bytes
  static constexpr std::size_t kFirst = 4 * 1024;    ///< bytes, for a connection that has received little

  TcpInput(int socket, std::size_t bytes) : socket_(socket), bytes_(bytes) {}

  [[nodiscard]] int socket() const noexcept { return socket_; }

  /// From now on, the socket may have new bytes.
  void begin_round() noexcept { drained_ = false; }
  [[nodiscard]] std::size_t available() const noexcept { return end_ - begin_; }
  /// The buffer's size in bytes.
  [[nodiscard]] std::size_t room() const noexcept { return bytes_.size(); }
  [[nodiscard]] std::byte* data() noexcept { return bytes_.data() + begin_; }
  void consume(std::size_t bytes) noexcept { begin_ += bytes; }
  /// Discards up to `most` of the available bytes. Returns the number.
  std::size_t skip(std::size_t most) noexcept;
  /// The same, but reads from the socket and discards if no byte is available.
  [[nodiscard]] Moved throw_away(std::size_t most);
  template <typename Message>
  void take(Message& message) noexcept {
    std::memcpy(static_cast<void*>(&message), data(), sizeof(message));
    consume(sizeof(message));
  }

  /// Receives at least one byte, so that `needed` bytes are available.
  /// exactly  receives no bytes after them
  /// Returns  0; EAGAIN: none at present; other errors as tcp_receive(). If a read fills a buffer of at least kFirst
  ///          bytes, the buffer grows, up to kUsual.
  [[nodiscard]] int fill(std::size_t needed, bool exactly = false);
  /// Makes room for messages of `length`. The buffer grows with the received bytes, not with the announced length.
  void make_room(std::size_t length);
  /// Makes room for many messages at a time.
  void widen() {
    if (bytes_.size() < kFirst) bytes_.resize(kFirst);
  }
  /// Reads and discards input until the peer has closed. Call it before closing the socket: if a socket is closed with
  /// unread input, TCP may discard the data that was sent last. Each call reads a limited amount. Returns false: the
  /// peer has closed, or has sent more than `most` bytes in all calls.
  [[nodiscard]] bool linger(std::size_t most = SIZE_MAX);
  /// Moves at most `most` bytes to `places`: available bytes, else from the socket. A read that receives the last of
  /// them also receives up to `ahead` following bytes into the buffer.
  [[nodiscard]] Moved move(std::span<iovec> places, std::size_t most, std::size_t ahead = 0) noexcept;

 private:
  const int socket_;
  [[nodiscard]] Moved receive(std::span<const iovec> places, std::size_t wanted, std::size_t ahead) noexcept;

  std::vector<std::byte> bytes_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  bool is_too_small_ = false;  // one read could have received more
  std::size_t lingered_ = 0;   // total bytes that linger() has read
  bool drained_ = false;       // the socket had fewer bytes than requested
};

}  // namespace rdmacomm::softdev
