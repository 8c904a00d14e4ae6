// frames.h - sends and receives frames in the blocks of a stream.   Wire form: docs/wire_format.md "Copies"
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
/// A block has room for 512 KiB of a file and its header, so that data begins and ends at pages of the file.
inline constexpr std::size_t kDataBytes = std::size_t{512} << 10;
inline constexpr std::size_t kBlockBytes = kDataBytes + 4096;

[[nodiscard]] StreamOptions stream_options();

/// Puts frames into blocks; a frame never spans two blocks. A resource; does not own the stream.
/// Threads: one at a time. All functions return the errors of RDMAStream::lend and commit.
class FrameWriter {
 public:
  /// work  is informed when this waits for the peer; may be null
  explicit FrameWriter(RDMAStream& stream, Work* work = nullptr) : stream_(stream), work_(work) {}

  /// kInvalidArgument: more than a block can hold.
  [[nodiscard]] Status put(FrameKind kind, std::span<const std::byte> payload);
  /// Room for data of a file in the block that is sent: `wanted` bytes, or less, and then whole pages, at a multiple of
  /// kDataAlignment. Returns the same room until commit_data(), which takes the number of bytes that were filled (0:
  /// none), and their offset in the file.
  ///
  /// wanted  1 or more
  [[nodiscard]] Result<std::span<std::byte>> lend_data(std::uint64_t wanted);
  [[nodiscard]] Status commit_data(std::uint64_t offset, std::size_t count);
  /// Sends everything that was put.
  [[nodiscard]] Status flush();

 private:
  [[nodiscard]] Result<std::span<std::byte>> room(std::size_t least);

  RDMAStream& stream_;
  Work* const work_;
  std::span<std::byte> lent_;  // by lend_data(), with the header
  std::size_t padding_ = 0;    // after that header
};

/// A frame that was received. A value. The payload is valid until the next frame is read, or as long as `block` is
/// kept.
struct Frame {
  FrameKind kind = FrameKind::kPad;
  std::span<const std::byte> payload = {};
  std::shared_ptr<const StreamBlock> block = nullptr;  ///< contains the payload
};

/// Takes frames out of blocks. A resource; does not own the stream.
/// Threads: one at a time.
class FrameReader {
 public:
  /// work  is informed when this waits for the peer; may be null
  explicit FrameReader(RDMAStream& stream, Work* work = nullptr) : stream_(stream), work_(work) {}

  /// Waits for the next frame. Empty: the end.
  /// Returns  as RDMAStream::next; kBadMessage: not a frame
  [[nodiscard]] Result<std::optional<Frame>> next(Deadline deadline);

 private:
  RDMAStream& stream_;
  Work* const work_;
  std::shared_ptr<const StreamBlock> block_;
  std::span<const std::byte> rest_;
};

}  // namespace rdmacomm::copying
