// message_stream.h - messages of any size over a channel, with their boundaries.
// Layer: stream. Uses: base, memory, channel, endpoint.   How to use it: docs/streams.md; why so:
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

/// A message that was received, or a part of one that is larger than the pool's largest block. A handle: it moves, and
/// does not copy. release() and the destructor give its memory back. Threads, lifetime and ABI as StreamBlock and
/// BufferLease.
class RDMACOMM_API MessagePart {
 public:
  MessagePart() = default;  ///< the end: no more messages; also what one is that was moved from
  MessagePart(MessagePart&& other) noexcept
      : is_message_(std::exchange(other.is_message_, false)),
        message_bytes_(std::exchange(other.message_bytes_, 0)),
        offset_(std::exchange(other.offset_, 0)),
        last_(std::exchange(other.last_, false)),
        block_(std::move(other.block_)),
        lease_(std::move(other.lease_)) {}
  MessagePart& operator=(MessagePart&& other) noexcept {
    is_message_ = std::exchange(other.is_message_, false);
    message_bytes_ = std::exchange(other.message_bytes_, 0);
    offset_ = std::exchange(other.offset_, 0);
    last_ = std::exchange(other.last_, false);
    block_ = std::move(other.block_);
    lease_ = std::move(other.lease_);
    return *this;
  }
  ~MessagePart() = default;

  /// Whether it is of a message, also of one without bytes. Else it is the end.
  explicit operator bool() const noexcept { return is_message_; }
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept {
    return lease_ ? std::span<const std::byte>(lease_.bytes()) : block_.bytes();
  }
  /// Of the whole message, and where in it these bytes are.
  [[nodiscard]] std::uint64_t message_bytes() const noexcept { return message_bytes_; }
  [[nodiscard]] std::uint64_t offset() const noexcept { return offset_; }
  /// Whether the message ends here.
  [[nodiscard]] bool last() const noexcept { return last_; }
  /// bytes() are empty then; all else stays.
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

/// Messages to a peer and from it, each way in order, each as it was sent. Those of up to block_bytes() go as they are,
/// into the peer's blocks. Of larger ones the peer is told where they are, and reads them into its pool: at once,
/// whatever its application does meanwhile, as long as the pool has room. Ends, aborts, waits, threads and lifetime are
/// RDMAStream's.
///
/// Both sides may send large messages at once: as long as what is sent and what comes have room in the pools together,
/// nobody waits for the other's receive(). Beyond that a sender waits for the peer to receive, until its deadline.
class RDMACOMM_API MessageStream {
 public:
  /// Parts of larger messages that the peer has not read yet, at most.
  static constexpr int kMaxAnnounced = 4;

  /// As StreamOptions::channel(), for a stream of messages.
  [[nodiscard]] static ChannelConfig channel(const StreamOptions& options, std::string name);
  /// As RDMAStream::open().
  ///
  /// channel  of channel(), with the same options
  /// pool     in the channel's protection domain (mostly its device's own); for larger messages, in and out. The peer
  ///          may read in it: BufferPoolOptions's remote_access has kRead. Several streams may share it; each keeps it
  ///          alive
  /// Returns  as RDMAStream::open(); kInvalidArgument also: the pool
  [[nodiscard]] static Result<MessageStream> open(const EndPoint& endpoint, RDMAChannel& channel,
                                                  const BufferPool& pool, const StreamOptions& options,
                                                  Deadline deadline);
  MessageStream() noexcept = default;  ///< none: it can only be assigned to, and asked by operator bool
  MessageStream(MessageStream&& other) noexcept = default;
  MessageStream& operator=(MessageStream&& other) noexcept;
  ~MessageStream();  ///< as RDMAStream's
  explicit operator bool() const noexcept { return link_ != nullptr; }

  // Sending -----------------------------------------------------------------------------------------------------

  /// Lends registered memory of block_bytes() for a message. As RDMAStream::lend().
  [[nodiscard]] Result<std::span<std::byte>> lend(Deadline deadline);
  /// The first `count` bytes of what was lent are a message, which is sent, now or when the peer has room.
  /// count    0..block_bytes() (more is a bug of the caller's and ends the program)
  /// Returns  ok, or why the stream has ended
  [[nodiscard]] Status commit(std::size_t count);
  /// Sends a message of any size, 0 too, by copying it: into a block, or into blocks of the pool.
  /// Returns  as lend(); also kTimeout: the pool had no room; the stream then ends with it where part of the message
  ///          was sent
  [[nodiscard]] Status send(std::span<const std::byte> message, Deadline deadline);
  /// Sends what is in `lease` without copying it, and gives it back when the peer has it. On errors it is given back
  /// too.
  /// lease    of the pool, or of another one on the same device that lets peers read
  /// Returns  as send()
  [[nodiscard]] Status send(BufferLease lease, Deadline deadline);
  /// Returns when all messages are with the device.
  [[nodiscard]] Status flush(Deadline deadline);
  /// As RDMAStream::finish().
  [[nodiscard]] Status finish(Deadline deadline);

  // Receiving ---------------------------------------------------------------------------------------------------

  /// Waits for the next message, or for the next part of one; see MessagePart. Several may be had at a time.
  /// Returns  as all waits of RDMAStream
  [[nodiscard]] Result<MessagePart> receive(Deadline deadline);

  // Both --------------------------------------------------------------------------------------------------------

  [[nodiscard]] Status close(Deadline deadline);  ///< as RDMAStream's, as what follows
  void abort(std::string_view reason);
  [[nodiscard]] Status status() const;
  /// The largest message that goes by lend() and commit().
  [[nodiscard]] std::size_t block_bytes() const;
  [[nodiscard]] StreamCounts counts() const;
  [[nodiscard]] const EndPoint& endpoint() const;

 private:
  RDMACOMM_LOCAL explicit MessageStream(std::shared_ptr<StreamLink> link);
  RDMACOMM_LOCAL [[nodiscard]] StreamLink& link() const;
  RDMACOMM_LOCAL [[nodiscard]] Status send_large(std::span<const std::byte> message, Deadline deadline);

  std::shared_ptr<StreamLink> link_;
};

}  // namespace rdmacomm
