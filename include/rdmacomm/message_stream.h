// message_stream.h - messages of any size over a channel; message boundaries are kept.
// Layer: stream. Uses: base, memory, channel, endpoint.   How to use it: docs/streams.md; design:
// docs/adr/0015-streams.md
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "rdmacomm/buffer_pool.h"
#include "rdmacomm/channel.h"
#include "rdmacomm/deadline.h"
#include "rdmacomm/endpoint.h"
#include "rdmacomm/result.h"
#include "rdmacomm/stream.h"

namespace rdmacomm {

/// A received message, or a part of a message that is larger than the pool's largest block. A handle: movable, not
/// copyable. release() and the destructor give its memory back. Threads, lifetime and ABI as for StreamBlock and
/// BufferLease.
class RDMACOMM_API MessagePart {
 public:
  MessagePart() = default;  ///< the end: no more messages
  /// Takes the message and its memory. `other` is then the end, as if default-constructed.
  MessagePart(MessagePart&& other) noexcept
      : is_message_(std::exchange(other.is_message_, false)),
        message_bytes_(std::exchange(other.message_bytes_, 0)),
        offset_(std::exchange(other.offset_, 0)),
        last_(std::exchange(other.last_, false)),
        block_(std::move(other.block_)),
        lease_(std::move(other.lease_)) {}
  /// The same. Gives back the memory that this object had.
  MessagePart& operator=(MessagePart&& other) noexcept {
    is_message_ = std::exchange(other.is_message_, false);
    message_bytes_ = std::exchange(other.message_bytes_, 0);
    offset_ = std::exchange(other.offset_, 0);
    last_ = std::exchange(other.last_, false);
    block_ = std::move(other.block_);
    lease_ = std::move(other.lease_);
    return *this;
  }
  ~MessagePart() = default;  ///< release()

  /// Whether this is a message or a part of one; true also for a message without bytes. False: the end.
  explicit operator bool() const noexcept { return is_message_; }
  /// The bytes of this part, until release(). Empty for a message without bytes, and for the end.
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept {
    return lease_ ? std::span<const std::byte>(lease_.bytes()) : block_.bytes();
  }
  /// The size of the whole message, in bytes.
  [[nodiscard]] std::uint64_t message_bytes() const noexcept { return message_bytes_; }
  /// The position of bytes() in the message: 0 in its first or only part.
  [[nodiscard]] std::uint64_t offset() const noexcept { return offset_; }
  /// Whether the message ends here.
  [[nodiscard]] bool last() const noexcept { return last_; }
  /// Gives the memory back. bytes() is empty then; the other values stay.
  void release() noexcept {
    block_.release();
    lease_.reset();
  }

 private:
  friend class MessageStream;
  explicit MessagePart(StreamBlock block) noexcept
      : is_message_(true), message_bytes_(block.size()), last_(true), block_(std::move(block)) {}
  MessagePart(BufferLease lease, std::uint64_t message_bytes, std::uint64_t offset) noexcept
      : is_message_(true),
        message_bytes_(message_bytes),
        offset_(offset),
        last_(offset + lease.size() == message_bytes),
        lease_(std::move(lease)) {}

  bool is_message_ = false;
  std::uint64_t message_bytes_ = 0;
  std::uint64_t offset_ = 0;
  bool last_ = false;
  StreamBlock block_;
  BufferLease lease_;
};

/// Messages to and from a peer. Each direction keeps the order of its messages. Messages of up to block_bytes() are
/// sent into the peer's blocks. For a larger message the sender announces its location, and the peer reads it into its
/// pool. The peer does so at once, if its pool has room, also while its application does something else. Ends, aborts,
/// waits, threads and lifetime are as for RDMAStream.
///
/// Both ends may send large messages at the same time. If the pools have room for the outgoing and the incoming
/// messages together, no end waits for the peer's receive(). Otherwise a sender waits until the peer receives, or until
/// its deadline.
class RDMACOMM_API MessageStream {
 public:
  /// Maximum number of announced parts of larger messages that the peer has not read yet.
  static constexpr int kMaxAnnounced = 4;

  /// Like StreamOptions::channel(), for a stream of messages: with the additional requests that larger messages need.
  [[nodiscard]] static ChannelConfig channel(const StreamOptions& options, std::string name);
  /// Like RDMAStream::open().
  ///
  /// endpoint  established
  /// channel   created with channel() and the same options
  /// pool      in the channel's protection domain (mostly the device's own); for larger messages, sent and received.
  ///           Its BufferPoolOptions::remote_access has kRead, so that the peer can read. Several streams may share it;
  ///           each keeps it alive
  /// options   of the local end
  /// deadline  until when the peer must have called it, too
  /// Returns   as RDMAStream::open(); kInvalidArgument also: the pool
  [[nodiscard]] static Result<MessageStream> open(const EndPoint& endpoint, RDMAChannel& channel,
                                                  const BufferPool& pool, const StreamOptions& options,
                                                  Deadline deadline);
  MessageStream() noexcept = default;  ///< no stream: only assignment and operator bool are allowed
  /// Takes the stream. `other` then has none, as if default-constructed.
  MessageStream(MessageStream&& other) noexcept = default;
  /// The same. Ends the stream that this object had, as the destructor does.
  MessageStream& operator=(MessageStream&& other) noexcept;
  ~MessageStream();                                                     ///< as ~RDMAStream()
  explicit operator bool() const noexcept { return link_ != nullptr; }  ///< whether it has a stream, also an ended one

  // Sending -----------------------------------------------------------------------------------------------------

  /// Lends registered memory of block_bytes() for a message. As RDMAStream::lend().
  [[nodiscard]] Result<std::span<std::byte>> lend(Deadline deadline);
  /// Makes the first `count` bytes of the lent memory a message. It is sent now, or when the peer has room.
  ///
  /// count    0..block_bytes(); a larger value is a bug in the program and ends it
  /// Returns  ok, or the reason why the stream has ended
  [[nodiscard]] Status commit(std::size_t count);
  /// Sends a message of any size, also 0, by copying it: into a block, or into blocks of the pool.
  ///
  /// Returns  as lend(); also kTimeout: the pool had no room. If part of the message was sent by then, the stream is
  ///          aborted
  [[nodiscard]] Status send(std::span<const std::byte> message, Deadline deadline);
  /// Sends the bytes of `lease` without copying them, and gives it back when the peer has them; also on errors. A
  /// lease that is larger than the largest block of either pool is copied, in parts. An empty lease sends a message
  /// without bytes.
  ///
  /// lease     of the pool, or of another pool on the same device that lets peers read
  /// deadline  until when to wait for room
  /// Returns   as the other send()
  [[nodiscard]] Status send(BufferLease lease, Deadline deadline);
  /// Waits until all messages are posted to the device.
  [[nodiscard]] Status flush(Deadline deadline);
  /// As RDMAStream::finish().
  [[nodiscard]] Status finish(Deadline deadline);

  // Receiving ---------------------------------------------------------------------------------------------------

  /// Waits for the next message, or for the next part of one; see MessagePart. The caller may hold several parts at a
  /// time.
  ///
  /// Returns  as all waits of RDMAStream
  [[nodiscard]] Result<MessagePart> receive(Deadline deadline);

  // Both --------------------------------------------------------------------------------------------------------

  [[nodiscard]] Status close(Deadline deadline);  ///< as RDMAStream::close()
  void abort(std::string_view reason);            ///< as RDMAStream::abort()
  [[nodiscard]] Status status() const;            ///< as RDMAStream::status()
  /// The largest message that lend() and commit() can send.
  [[nodiscard]] std::size_t block_bytes() const;
  /// As RDMAStream::counts(). Each part of a larger message is one block, which counts when it is announced.
  [[nodiscard]] StreamCounts counts() const;
  /// The endpoint that it was opened on. The reference is valid while the stream lives.
  [[nodiscard]] const EndPoint& endpoint() const;

 private:
  RDMACOMM_LOCAL explicit MessageStream(std::shared_ptr<StreamLink> link);
  RDMACOMM_LOCAL [[nodiscard]] StreamLink& link() const;
  RDMACOMM_LOCAL [[nodiscard]] Status send_large(std::span<const std::byte> message, Deadline deadline);

  std::shared_ptr<StreamLink> link_;
};

}  // namespace rdmacomm
