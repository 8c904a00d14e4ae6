// byte_stream.h - the transport under a Connector: an ordered stream of bytes each way. Private to the layer.
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

/// The result of one attempt to receive or send.
struct Transfer {
  std::size_t bytes = 0;       ///< bytes moved; 0 without an error, when receiving: the peer's stream has ended
  std::error_code error = {};  ///< operation_would_block: not now; else why the stream failed. kDeviceLost:
                               ///< the cause is local, not the peer
  std::string cause = {};      ///< the same with more detail, if known

  [[nodiscard]] std::string why() const { return cause.empty() ? error.message() : cause; }
};

/// Whether bytes that were sent and have not arrived yet are still delivered.
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
  /// Waits until receive() has bytes or an end to report, or until the deadline; may return early.
  virtual void await_input(Deadline deadline) = 0;
  /// The same for send(). Returns false if the deadline has passed.
  [[nodiscard]] virtual bool await_room(Deadline deadline) = 0;
  /// Whether the peer's stream or the connection has ended. Bytes that arrived earlier can still be received.
  [[nodiscard]] virtual bool ended() = 0;
  /// Ends the local stream. The peer receives all bytes that were sent before the end.
  virtual void end_sending() noexcept = 0;
  /// Ends both directions and every wait. The descriptors stay open until the destructor, so that no wait can use a
  /// descriptor that has been reused. With kDeliver it may wait briefly, so that the last bytes are delivered.
  virtual void shut_down(LastBytes last) noexcept = 0;

  [[nodiscard]] virtual WatchedFd watched() const noexcept = 0;
  [[nodiscard]] virtual const std::string& local_address() const noexcept = 0;
  [[nodiscard]] virtual const std::string& peer_address() const noexcept = 0;
  [[nodiscard]] virtual const Gid& local_gid() const noexcept = 0;
};

}  // namespace rdmacomm
