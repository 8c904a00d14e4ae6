// tcp_introduction.h - the first messages on a connection: a greeting and the welcome that answers it.
#pragma once

#include <cstddef>
#include <optional>

#include "softdev/tcp/tcp_protocol.h"

namespace rdmacomm::softdev {

/// The connecting end of an introduction. Its greeting is a connection, a confirmation request, or a call.
/// Threads: one at a time.
class TcpIntroduction {
 public:
  explicit TcpIntroduction(const TcpGreeting& greeting) noexcept : greeting_(greeting) {}

  [[nodiscard]] const TcpGreeting& greeting() const noexcept { return greeting_; }
  /// Starts again, on another connection.
  void begin() noexcept { sent_ = 0; }
  /// Sends the part of the greeting that `socket` accepts. Returns 0, or an errno value as tcp_send().
  [[nodiscard]] int send_greeting(int socket) noexcept;
  [[nodiscard]] bool has_begun() const noexcept { return sent_ != 0; }
  [[nodiscard]] bool is_sent() const noexcept { return sent_ == sizeof(greeting_); }
  /// The welcome, once the greeting is sent; no value: it has not arrived yet. Its answer is
  /// kSoon also if the connection has ended or the received bytes are no welcome. kRefused is also returned for another version.
  [[nodiscard]] std::optional<TcpWelcome> welcome(int socket) noexcept;

 private:
  const TcpGreeting greeting_;
  std::size_t sent_ = 0;
};

}  // namespace rdmacomm::softdev
