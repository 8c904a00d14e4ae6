// frames.h - messages and file data within the blocks of a stream.   Wire form: docs/wire_format.md "Copies"
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "rdma_copy/frame_parts.h"
#include "rdma_copy/work.h"
#include "rdmacomm/deadline.h"
#include "rdmacomm/result.h"
#include "rdmacomm/stream.h"

namespace rdmacomm::copying {

inline constexpr const char* kChannel = "copy";
/// A block has 512 KiB of a file, whose head is before it: so data begin and end at pages of the file.
inline constexpr std::size_t kDataBytes = std::size_t{512} << 10;
inline constexpr std::size_t kBlockBytes = kDataBytes + 4096;

[[nodiscard]] StreamOptions stream_options();

/// Puts frames into blocks, none of them across two. A resource; does not own the stream.
/// Threads: one. All return what RDMAStream::lend and commit return.
class FrameWriter {
 public:
  /// work  is told when this waits for the peer; may be null
  explicit FrameWriter(RDMAStream& stream, Work* work = nullptr) : stream_(stream), work_(work) {}

  /// kInvalidArgument: more than a block has.
  [[nodiscard]] Status put(FrameKind kind, std::span<const std::byte> payload);
  /// Room for data of a file: `wanted` bytes, or less, then whole pages, out of the block that is sent, at a multiple
  /// of kDataAlignment. The same until commit_data(), which says how many of them there are (0: none), and where in the
  /// file they belong.
  ///
  /// wanted  1 or more
  [[nodiscard]] Result<std::span<std::byte>> lend_data(std::uint64_t wanted);
  [[nodiscard]] Status commit_data(std::uint64_t offset, std::size_t count);
  /// Everything is on its way.
  [[nodiscard]] Status flush();

 private:
  [[nodiscard]] Result<std::span<std::byte>> room(std::size_t least);

  RDMAStream& stream_;
  Work* const work_;
  std::span<std::byte> lent_;  // by lend_data(), with the head
  std::size_t padding_ = 0;    // behind that head
};

/// A frame that has come. A value; what it points to goes with the next one, unless `block` is kept.
struct Frame {
  FrameKind kind = FrameKind::kPad;
  std::span<const std::byte> payload = {};
  std::shared_ptr<const StreamBlock> block = nullptr;  ///< that it is in
};

/// Takes frames out of blocks. A resource; does not own the stream.
/// Threads: one.
class FrameReader {
 public:
  /// work  is told when this waits for the peer; may be null
  explicit FrameReader(RDMAStream& stream, Work* work = nullptr) : stream_(stream), work_(work) {}

  /// Waits for the next frame. Empty: the end.
  /// Returns  as RDMAStream::next; kBadMessage: it is none
  [[nodiscard]] Result<std::optional<Frame>> next(Deadline deadline);

 private:
  RDMAStream& stream_;
  Work* const work_;
  std::shared_ptr<const StreamBlock> block_;
  std::span<const std::byte> rest_;
};

}  // namespace rdmacomm::copying
