// stream.h - ordered bytes over a channel, with and without copying them.
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

#include "rdmacomm/buffer.h"
#include "rdmacomm/channel.h"
#include "rdmacomm/config.h"
#include "rdmacomm/deadline.h"
#include "rdmacomm/endpoint.h"
#include "rdmacomm/result.h"

namespace rdmacomm {

class RDMACOMM_API StreamLink;

/// The options of one end of a stream. A value. The two ends may differ: blocks are sent with the smaller of both block
/// sizes. Defaults: docs/streams.md, "Block size and depth".
struct RDMACOMM_API StreamOptions {
  static constexpr std::size_t kMinBlock = 1024;                  ///< smallest block_bytes
  static constexpr std::size_t kMaxBlock = std::size_t{1} << 30;  ///< largest block_bytes: 1 GiB
  static constexpr int kMaxBlocks = 4096;  ///< largest write_blocks, read_blocks, borrowed_blocks

  std::size_t block_bytes = std::size_t{256} << 10;  ///< size of each block: kMinBlock..kMaxBlock
  int write_blocks = 8;  ///< for sending, some filled while others are sent: 0..kMaxBlocks; 0: lend() is not possible
  int read_blocks = 8;   ///< for incoming data: 0..kMaxBlocks; 0: the peer can send nothing
  /// Blocks of write_from() in flight at a time: 0..kMaxBlocks. If the blocks are lent by another stream, they return
  /// to that stream only when they are sent. So choose less than the lending stream's read_blocks; otherwise that stream may stop.
  int borrowed_blocks = 4;
  bool huge_pages = false;  ///< as BufferOptions::huge_pages

  /// Whether this end sends data. Without write_blocks and borrowed_blocks it does not, and needs fewer receives.
  [[nodiscard]] bool writes() const noexcept { return write_blocks > 0 || borrowed_blocks > 0; }

  /// Checks the ranges above.
  ///
  /// Returns  kInvalidArgument: the context names the field, the value and the bound
  [[nodiscard]] Status validate() const;
  /// The channel for a stream with these options, for HcaConfig::channels or EndPoint::open_channel(). It has its own
  /// completion queue, and the depths that the stream needs.
  [[nodiscard]] ChannelConfig channel(std::string name) const;

  /// Maximum number of send-side requests that a stream of bytes has outstanding at a time.
  [[nodiscard]] int send_depth() const noexcept;
  /// Maximum number of receives that a stream of bytes has outstanding at a time.
  [[nodiscard]] int recv_depth() const noexcept;
};

/// Bytes that a stream has received, still in the registered memory into which they were sent. release(), the
/// destructor, or assigning another block releases them. A handle: movable, not copyable.
///
/// Threads   one thread at a time; it need not be the thread that received the block
/// Lifetime  may outlive its stream; the memory stays until the block is released
/// ABI       the layout of its members is fixed, because most calls are inlined
class RDMACOMM_API StreamBlock {
 public:
  StreamBlock() = default;  ///< no bytes; also stands for the end of a stream
  /// Takes the bytes of `other`, which then has none.
  StreamBlock(StreamBlock&& other) noexcept
      : link_(std::exchange(other.link_, nullptr)), slot_(other.slot_), slice_(std::exchange(other.slice_, {})) {}
  /// The same, after release() of this block.
  StreamBlock& operator=(StreamBlock&& other) noexcept;
  ~StreamBlock() { release(); }  ///< release()

  /// Gives the block back. The peer may fill it again, so its bytes must not be read any more. No effect on an empty
  /// block.
  void release() noexcept {
    if (link_ != nullptr) give_back();
  }
  /// Whether it has bytes. False: the end of the stream.
  explicit operator bool() const noexcept { return link_ != nullptr; }
  /// The received bytes, until release(); empty at the end of the stream.
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return slice_.bytes(); }
  [[nodiscard]] std::size_t size() const noexcept { return slice_.size(); }  ///< the number of bytes()
  /// The same bytes as a slice, for RDMAStream::write_from().
  [[nodiscard]] const BufferSlice& slice() const noexcept { return slice_; }

 private:
  friend class RDMAStream;
  friend class MessageStream;
  StreamBlock(StreamLink& link, std::uint32_t slot, const BufferSlice& slice) noexcept
      : link_(&link), slot_(slot), slice_(slice) {}
  void give_back() noexcept;

  StreamLink* link_ = nullptr;  // lives until all its blocks are given back
  std::uint32_t slot_ = 0;
  BufferSlice slice_{};
};

/// Counters of a stream. A value.
struct RDMACOMM_API StreamCounts {
  std::uint64_t bytes_written = 0;   ///< given to the device
  std::uint64_t blocks_written = 0;  ///< messages that carried these bytes
  std::uint64_t bytes_read = 0;      ///< received, also those not read yet
  std::uint64_t blocks_read = 0;     ///< messages that carried these bytes
  std::uint64_t credits_sent = 0;    ///< messages that only report how many blocks were released
  std::uint64_t waits_for_peer = 0;  ///< times that a block was ready, and the peer had no free block for it
};

/// Bytes to and from a peer over one channel. Each direction is ordered. The stream is the only user of the channel.
/// The peer sends only if this end has a free block, so that no data waits in the network for a reader. Movable, not
/// copyable.
///
/// finish() ends one direction; close() ends both in order. abort() ends both at once, with a reason. So do the end of
/// the endpoint, a request that fails, and a peer that breaks the protocol. Waiting calls then return with the reason.
/// Data that arrived earlier can still be read.
///
/// All waits return one of these errors, or one as EndPoint::wait() and Completion::explain():
///
/// - kTimeout: no success until the deadline; the call may be repeated
/// - kAborted: locally or by the peer; the context has the reason
/// - kBadMessage, kIncompatiblePeer: the peer has sent invalid data; the context has the details, and the peer is
///   informed
///
/// Threads   one thread that writes and one that reads, at the same time; abort() and counts() by any thread. Data is
///           sent, and blocks become free, only during calls: call flush() before waiting for something else
/// Lifetime  keeps its endpoint alive. The channel cannot be used any more when its stream is gone
class RDMACOMM_API RDMAStream {
 public:
  /// Opens the local end, and waits for the peer's. Both ends call it on an established endpoint. If the endpoint has
  /// several streams, both ends open them in the same order.
  ///
  /// endpoint  established
  /// channel   from StreamOptions::channel(), not used before
  /// options   of the local end
  /// deadline  until when the peer must have called it, too
  /// Returns   kInvalidArgument: options.validate(), or a channel that is too small for them; kWrongState: the stream
  ///           may not poll the channel's completion queue; kVersionMismatch, kIncompatiblePeer: the peer uses another
  ///           version, or has opened a stream of messages; as RDMABuffer::allocate and EndPoint::sync_with_peer; or as
  ///           all waits
  [[nodiscard]] static Result<RDMAStream> open(const EndPoint& endpoint, RDMAChannel& channel,
                                               const StreamOptions& options, Deadline deadline);
  RDMAStream() noexcept = default;  ///< no stream: only assignment and operator bool are allowed
  /// Takes the stream. `other` then has none, as if default-constructed.
  RDMAStream(RDMAStream&& other) noexcept = default;
  /// The same. Ends the stream that this object had, as the destructor does.
  RDMAStream& operator=(RDMAStream&& other) noexcept;
  /// Aborts an unfinished stream, and waits up to EndPoint::kDrainTime until the device no longer uses its memory.
  ~RDMAStream();
  explicit operator bool() const noexcept { return link_ != nullptr; }  ///< whether it has a stream, also an ended one

  // Writing -----------------------------------------------------------------------------------------------------

  /// Lends registered memory to fill: the free part of the current block, at least one byte. Waits until a block is
  /// free. The memory is lent until commit(); a second lend() before that lends the same memory. The order of the
  /// blocks is not defined: the block that was sent last is preferred, because the processor's cache still has it.
  ///
  /// Returns  as all waits; kWrongState: after finish(), without write_blocks, or the peer has no read_blocks
  [[nodiscard]] Result<std::span<std::byte>> lend(Deadline deadline);
  /// Writes the first `count` bytes of the lent memory. A full block is sent, now or when the peer has room.
  ///
  /// count    0..the size of the lent memory; a larger value is a bug in the program and ends it
  /// Returns  ok, or the reason why the stream has ended
  [[nodiscard]] Status commit(std::size_t count);
  /// Writes bytes from any memory, by copying them.
  ///
  /// Returns  as lend(); on errors some of them may have been written
  [[nodiscard]] Status write(std::span<const std::byte> bytes, Deadline deadline);
  /// Writes bytes from registered memory of another owner, without copying them: blocks that another stream has lent,
  /// leases of a pool. Bytes that were committed before are sent first.
  ///
  /// slice     in the channel's protection domain (mostly the device's own). It must stay unchanged and registered
  ///           while `keep` is kept
  /// keep      is kept until the bytes are sent, and then dropped by any thread that calls this stream. So it may own
  ///           the memory, and several streams may share it
  /// deadline  until when to wait while borrowed_blocks such slices are in flight
  /// Returns   as lend(), but write_blocks are not needed; kInvalidArgument: without borrowed_blocks
  ///           (kWrongState, if there are no write_blocks either). On errors nothing of it is written, and `keep` is
  ///           dropped
  [[nodiscard]] Status write_from(const BufferSlice& slice, std::shared_ptr<const void> keep, Deadline deadline);
  /// Sends all committed bytes, also if they do not fill a block, and returns when the device has all of them.
  [[nodiscard]] Status flush(Deadline deadline);
  /// Ends the outgoing direction: the peer reads all written bytes, then the end. Waits until the peer has read the
  /// end, and has released all blocks before it. May be repeated.
  ///
  /// Returns  ok: the peer has taken everything, and write_from() keeps nothing more; or as all waits
  [[nodiscard]] Status finish(Deadline deadline);

  // Reading -----------------------------------------------------------------------------------------------------

  /// Waits for bytes, and lends the oldest block of them. Several blocks may be lent at a time, and may be released in
  /// any order. A block without bytes is the end: the peer has finished. When all blocks are released, the stream tells
  /// the peer that everything was taken.
  ///
  /// Returns  as all waits
  [[nodiscard]] Result<StreamBlock> next(Deadline deadline);
  /// Waits for bytes, and copies the available ones, at most out.size().
  ///
  /// Returns  the number of copied bytes; 0: the end (or `out` is empty); or as all waits
  [[nodiscard]] Result<std::size_t> read(std::span<std::byte> out, Deadline deadline);

  // Both --------------------------------------------------------------------------------------------------------

  /// Ends both directions in order: sends the local end, waits for the peer's end, and then until each end knows that
  /// the peer has taken everything. Release the blocks of next() before. Both ends may call it at the same time. May be
  /// repeated.
  ///
  /// Returns  ok: both ends have all bytes; kAborted: the peer has sent bytes that were not read locally, which ends
  ///          the stream; kTimeout: also if the peer neither writes nor ends; or as all waits
  [[nodiscard]] Status close(Deadline deadline);
  /// Ends both directions at once: waits at both ends return kAborted. Up to 400 bytes of `reason` are sent: the middle
  /// of a longer text is left out, and '?' replaces unprintable characters. No effect if the stream has ended
  /// otherwise.
  void abort(std::string_view reason);
  /// ok, or the reason why the stream has ended. After finish() it is still ok.
  [[nodiscard]] Status status() const;
  /// Bytes in a block that is sent: the smaller of both ends' block_bytes.
  [[nodiscard]] std::size_t block_bytes() const;
  /// The counters now, of both directions.
  [[nodiscard]] StreamCounts counts() const;
  /// The endpoint that it was opened on. The reference is valid while the stream lives.
  [[nodiscard]] const EndPoint& endpoint() const;

 private:
  RDMACOMM_LOCAL explicit RDMAStream(std::shared_ptr<StreamLink> link);
  RDMACOMM_LOCAL [[nodiscard]] StreamLink& link() const;

  std::shared_ptr<StreamLink> link_;
  StreamBlock current_;  // block of read()
  std::size_t read_of_current_ = 0;
};

}  // namespace rdmacomm
