// stream.h - ordered bytes over a channel, with and without copying them.
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

#include "rdmacomm/buffer.h"
#include "rdmacomm/channel.h"
#include "rdmacomm/config.h"
#include "rdmacomm/deadline.h"
#include "rdmacomm/endpoint.h"
#include "rdmacomm/result.h"

namespace rdmacomm {

class RDMACOMM_API StreamLink;

/// What one end of a stream is made with. A value. The two ends may differ: a block that is sent is as large as both
/// have. Defaults: docs/streams.md, "Block size and depth".
struct RDMACOMM_API StreamOptions {
  static constexpr std::size_t kMinBlock = 1024;
  static constexpr std::size_t kMaxBlock = std::size_t{1} << 30;
  static constexpr int kMaxBlocks = 4096;

  std::size_t block_bytes = std::size_t{256} << 10;  ///< kMinBlock..kMaxBlock
  int write_blocks = 8;  ///< to fill while others are on their way: 0..kMaxBlocks; 0: this end lends none
  int read_blocks = 8;   ///< for what comes: 0..kMaxBlocks; 0: the peer can send nothing
  /// Blocks of write_from() in flight at a time: 0..kMaxBlocks. Blocks that another stream has lent go back to it when
  /// they are sent, so less than that one's read_blocks; else it may come to a stop.
  int borrowed_blocks = 4;
  bool huge_pages = false;  ///< as BufferOptions::huge_pages

  /// Whether this end sends data. One with neither write_blocks nor borrowed_blocks does not, and has fewer receives.
  [[nodiscard]] bool writes() const noexcept { return write_blocks > 0 || borrowed_blocks > 0; }

  /// kInvalidArgument: the context names the field, the value and the bound.
  [[nodiscard]] Status validate() const;
  /// The channel that a stream with these options wants, for HcaConfig::channels or EndPoint::open_channel(): a
  /// completion queue of its own, and depths.
  [[nodiscard]] ChannelConfig channel(std::string name) const;

  /// Requests outstanding at a time, at most.
  [[nodiscard]] int send_depth() const noexcept;
  [[nodiscard]] int recv_depth() const noexcept;
};

/// Bytes that a stream has received, in the registered memory where they came, until they are released: by release(),
/// by the destructor, or by another block that is moved here. A handle: it moves, and does not copy.
/// Threads: one at a time; any, also another than the one that got it.
/// Lifetime: may outlive its stream; the memory stays as long.
/// ABI: its members' layout, since most calls are inlined.
class RDMACOMM_API StreamBlock {
 public:
  StreamBlock() = default;  ///< no bytes: also what stands for the end of a stream
  StreamBlock(StreamBlock&& other) noexcept
      : link_(std::exchange(other.link_, nullptr)), slot_(other.slot_), slice_(std::exchange(other.slice_, {})) {}
  StreamBlock& operator=(StreamBlock&& other) noexcept;
  ~StreamBlock() { release(); }

  /// Gives the block back: the peer may fill it again, and its bytes must not be looked at any more. Without effect on
  /// an empty block.
  void release() noexcept {
    if (link_ != nullptr) give_back();
  }
  /// Whether it has bytes. One that has none is the end.
  explicit operator bool() const noexcept { return link_ != nullptr; }
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return slice_.bytes(); }
  [[nodiscard]] std::size_t size() const noexcept { return slice_.size(); }
  /// The same as requests carry it: for RDMAStream::write_from().
  [[nodiscard]] const BufferSlice& slice() const noexcept { return slice_; }

 private:
  friend class RDMAStream;
  friend class MessageStream;
  StreamBlock(StreamLink& link, std::uint32_t slot, const BufferSlice& slice) noexcept
      : link_(&link), slot_(slot), slice_(slice) {}
  void give_back() noexcept;

  StreamLink* link_ = nullptr;  // which stays until it has all blocks back
  std::uint32_t slot_ = 0;
  BufferSlice slice_{};
};

/// What a stream has done. A value.
struct RDMACOMM_API StreamCounts {
  std::uint64_t bytes_written = 0;   ///< handed to the device
  std::uint64_t blocks_written = 0;  ///< messages that carried them
  std::uint64_t bytes_read = 0;      ///< that have come, also those not read yet
  std::uint64_t blocks_read = 0;
  std::uint64_t credits_sent = 0;    ///< messages that say nothing but how many blocks were released
  std::uint64_t waits_for_peer = 0;  ///< how often a block was ready, and the peer had none free for it
};

/// Bytes to a peer and from it, each way in order, over one channel, whose only user it is. The peer sends no more than
/// this end has blocks free, so that nothing waits in the network for a reader. Movable, not copyable.
///
/// Each way ends by itself, by finish(); close() ends both in order. abort() ends both at once, with a reason, and so
/// do the end of the endpoint, a request that fails, and a peer that breaks the rules; calls that wait then return,
/// with the reason. What came before is still read.
///
/// All waits return  kTimeout: in vain until the deadline; the call may be repeated
///                   kAborted: by either side; the context has the reason
///                   kBadMessage, kIncompatiblePeer: what the peer has sent; the context says what. The peer is told
///                   else as EndPoint::wait() and Completion::explain()
///
/// Threads: one that writes and one that reads, at the same time; abort() and counts() from any. Data is sent,
///          and blocks become free, only during calls: call flush() before waiting for something else.
/// Lifetime: keeps its endpoint alive. The channel is of no use when its stream is gone.
class RDMACOMM_API RDMAStream {
 public:
  /// Makes the local end, and waits for the peer's. Both sides call it on an established endpoint; if it has several
  /// streams, in the same order.
  ///
  /// channel  of StreamOptions::channel(), not used before
  /// Returns  kInvalidArgument: options.validate(), or a channel that is too small for them; kWrongState: the channel
  ///          has no completion queue that this may poll; kVersionMismatch, kIncompatiblePeer: the peer speaks another
  ///          version, or has opened a stream of messages; as RDMABuffer::allocate and EndPoint::sync_with_peer; or as
  ///          all waits
  [[nodiscard]] static Result<RDMAStream> open(const EndPoint& endpoint, RDMAChannel& channel,
                                               const StreamOptions& options, Deadline deadline);
  RDMAStream() noexcept = default;  ///< none: it can only be assigned to, and asked by operator bool
  RDMAStream(RDMAStream&& other) noexcept = default;
  RDMAStream& operator=(RDMAStream&& other) noexcept;
  /// Aborts what was not finished, and waits up to EndPoint::kDrainTime for the device to be done with its memory.
  ~RDMAStream();
  explicit operator bool() const noexcept { return link_ != nullptr; }

  // Writing -----------------------------------------------------------------------------------------------------

  /// Lends registered memory to fill: what is free of the current block, at least one byte. Waits for a block to be
  /// free. It is lent until commit(); calling lend() again before lends the same. Blocks come in no order: the one that
  /// was sent last is preferred, as the processor's cache still has it.
  /// Returns  as all waits; kWrongState: after finish(), without write_blocks, or the peer has no read_blocks
  [[nodiscard]] Result<std::span<std::byte>> lend(Deadline deadline);
  /// The first `count` bytes of what was lent are written. A block that is full is sent, now or when the peer has room.
  /// count    0..size of what was lent (more is a bug of the caller's and ends the program)
  /// Returns  ok, or why the stream has ended
  [[nodiscard]] Status commit(std::size_t count);
  /// Writes bytes that are anywhere, by copying them. Returns  as lend(); on errors some of them may have been written.
  [[nodiscard]] Status write(std::span<const std::byte> bytes, Deadline deadline);
  /// Writes bytes out of registered memory of others, without copying them: blocks that another stream has lent, leases
  /// of a pool. What was committed before goes first.
  ///
  /// slice    in the channel's protection domain (mostly its device's own); unchanged, and registered, as long as
  ///          `keep` is kept
  /// keep     is kept until the bytes are sent, then dropped by whatever thread calls this stream: so it may be the
  ///          memory's owner, and several streams may have it
  /// Returns  as lend(), but write_blocks do not matter; kInvalidArgument: without borrowed_blocks. On errors
  ///          nothing of it is written, and `keep` is dropped
  [[nodiscard]] Status write_from(const BufferSlice& slice, std::shared_ptr<const void> keep, Deadline deadline);
  /// Sends what was committed, also where it does not fill a block, and returns when the device has it all.
  [[nodiscard]] Status flush(Deadline deadline);
  /// Ends this way: the peer reads what was written, then the end. Waits until the peer has read the end, and released
  /// all blocks before. May be repeated.
  /// Returns  ok: the peer has taken everything; or as all waits
  [[nodiscard]] Status finish(Deadline deadline);

  // Reading -----------------------------------------------------------------------------------------------------

  /// Waits for bytes, and lends the oldest block of them; several may be lent at a time, and are released in any order.
  /// One without bytes is the end: the peer has finished, and is told that all was taken, when all blocks are released.
  /// Returns  as all waits
  [[nodiscard]] Result<StreamBlock> next(Deadline deadline);
  /// Waits for bytes, and copies what has come of them, at most out.size(). 0: the end (or `out` is empty).
  /// Returns  as all waits
  [[nodiscard]] Result<std::size_t> read(std::span<std::byte> out, Deadline deadline);

  // Both --------------------------------------------------------------------------------------------------------

  /// Ends both ways in order: sends this side's end, waits for the peer's, and then until each side knows that the
  /// other has taken everything: release the blocks of next() before. Both sides may call it at the same time. May be
  /// repeated.
  /// Returns  ok: both sides have all bytes; kAborted: bytes of the peer's have come that nobody has read, which ends
  ///          the stream; kTimeout: also where the peer goes on writing nothing, and does not end; or as all waits
  [[nodiscard]] Status close(Deadline deadline);
  /// Ends both ways at once: waits on both sides return kAborted. Of `reason` up to 400 bytes travel: the middle of a
  /// longer one is left out, and '?' stands for what is not printable. Without effect where the stream has ended
  /// otherwise.
  void abort(std::string_view reason);
  /// ok, or why the stream has ended: not by finish().
  [[nodiscard]] Status status() const;
  /// Bytes in a block that is sent: the smaller of both sides' block_bytes.
  [[nodiscard]] std::size_t block_bytes() const;
  [[nodiscard]] StreamCounts counts() const;
  [[nodiscard]] const EndPoint& endpoint() const;

 private:
  RDMACOMM_LOCAL explicit RDMAStream(std::shared_ptr<StreamLink> link);
  RDMACOMM_LOCAL [[nodiscard]] StreamLink& link() const;

  std::shared_ptr<StreamLink> link_;
  StreamBlock current_;  // of read()
  std::size_t read_of_current_ = 0;
};

}  // namespace rdmacomm
