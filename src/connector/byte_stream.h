// byte_stream.h - what carries a connector's messages: an ordered stream of bytes each way. Private to the layer.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <system_error>

#include "connector/connector.h"
#include "rdmacomm/deadline.h"

namespace rdmacomm {

/// What came of one try to receive or send.
struct Transfer {
  std::size_t bytes = 0;       ///< moved; 0 without an error, when receiving: the peer's stream has ended
  std::error_code error = {};  ///< operation_would_block: nothing goes now; else why the stream has failed: kDeviceLost
                               ///< where that is this side's doing, not the peer's
  std::string cause = {};      ///< the same in more words, where there are more

  [[nodiscard]] std::string why() const { return cause.empty() ? error.message() : cause; }
};

/// What becomes of bytes that were sent and have not arrived yet.
enum class LastBytes : std::uint8_t { kDeliver, kDrop };

/// Both directions of a connection. receive() and send() never block.
/// Threads: one in receive() or await_input(), one in send() or await_room(), at a time; the rest from any.
class ByteStream {
 public:
  ByteStream() = default;
  ByteStream(const ByteStream&) = delete;
  ByteStream& operator=(const ByteStream&) = delete;
  virtual ~ByteStream() = default;

  [[nodiscard]] virtual Transfer receive(std::span<std::byte> room) = 0;
  [[nodiscard]] virtual Transfer send(std::span<const std::byte> bytes) = 0;
  /// Waits until receive() has something to say, or the deadline; may return early.
  virtual void await_input(Deadline deadline) = 0;
  /// The same for send(). False: the deadline has passed.
  [[nodiscard]] virtual bool await_room(Deadline deadline) = 0;
  /// Whether the peer's stream has ended, or the connection has; what was sent before can still be received.
  [[nodiscard]] virtual bool ended() = 0;
  /// Ends this side's stream. What was sent arrives before the end does.
  virtual void end_sending() noexcept = 0;
  /// Ends both, and every wait. The descriptors stay open until the destructor, so no wait can hit a stranger's. To
  /// deliver what was sent last it may wait for a moment.
  virtual void shut_down(LastBytes last) noexcept = 0;

  [[nodiscard]] virtual WatchedFd watched() const noexcept = 0;
  [[nodiscard]] virtual const std::string& local_address() const noexcept = 0;
  [[nodiscard]] virtual const std::string& peer_address() const noexcept = 0;
  [[nodiscard]] virtual const Gid& local_gid() const noexcept = 0;
};

}  // namespace rdmacomm
