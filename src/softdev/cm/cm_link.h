// cm_link.h - the socket of one connection attempt, and of the connection that it becomes.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/unique_fd.h"
#include "softdev/cm/cm_message.h"

namespace rdmacomm::softdev {

/// The time between two tries to reach a listener whose process has no room.
inline constexpr std::chrono::milliseconds kNextCmTry{20};

/// Sends and receives whole messages over a non-blocking socket, UNIX or TCP. Never waits.
/// A peer cannot make it keep more than a few messages, or receive more than a few: the link then ends.
/// Threads: one at a time.
class CmLink {
 public:
  explicit CmLink(UniqueFd socket) noexcept : socket_(std::move(socket)) {}

  [[nodiscard]] int fd() const noexcept { return socket_.get(); }
  /// Sends a message as soon as the socket can take it. A socket that is still connecting cannot yet. If the peer does
  /// not read the earlier messages, the link ends: flush() returns ENOBUFS.
  void send(const CmMessage& message);
  /// Continues to send. Returns 0, or the errno value for which the socket has ended.
  [[nodiscard]] int flush() noexcept;
  [[nodiscard]] bool has_unsent() const noexcept { return sent_ < unsent_.size(); }

  enum class Received : std::uint8_t { kNothing, kMessage, kEnd };
  /// Receives one message, if all of it has arrived. kEnd: the peer has closed the socket, has sent something that is no
  /// message, or more messages than a connection has.
  [[nodiscard]] Received receive(CmMessage& message) noexcept;

 private:
  UniqueFd socket_;
  std::vector<std::byte> unsent_;
  std::size_t sent_ = 0;
  int failed_ = 0;  ///< the error of the first send that failed: later ones only say EPIPE
  CmMessage arriving_;
  std::size_t arrived_ = 0;
  std::uint32_t received_ = 0;  ///< messages
};

}  // namespace rdmacomm::softdev
