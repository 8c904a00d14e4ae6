// tcp_introduction.h - the first words on a connection: a greeting, and the welcome that it meets with.
#pragma once

#include <cstddef>
#include <optional>

#include "softdev/tcp/tcp_protocol.h"

namespace rdmacomm::softdev {

/// Of who has connected: to stay, to ask back, or to call.
/// Threads: one at a time.
class TcpIntroduction {
 public:
  explicit TcpIntroduction(const TcpGreeting& greeting) noexcept : greeting_(greeting) {}

  [[nodiscard]] const TcpGreeting& greeting() const noexcept { return greeting_; }
  /// On another connection, from the beginning.
  void begin() noexcept { sent_ = 0; }
  /// Sends what `socket` takes of the greeting. 0, or an errno value as tcp_send() has it.
  [[nodiscard]] int greet(int socket) noexcept;
  [[nodiscard]] bool has_begun() const noexcept { return sent_ != 0; }
  [[nodiscard]] bool is_sent() const noexcept { return sent_ == sizeof(greeting_); }
  /// Once it is sent: what came back; nothing: that is still to come. Not yet: also where the connection has ended, or what
  /// came is no welcome. Refused: also by another version.
  [[nodiscard]] std::optional<TcpWelcome> welcome(int socket) noexcept;

 private:
  const TcpGreeting greeting_;
  std::size_t sent_ = 0;
};

}  // namespace rdmacomm::softdev
