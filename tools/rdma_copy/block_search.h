// block_search.h - finds the parts of a file that the sink already has, at any offset.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "rdma_copy/block_hashes.h"
#include "rdma_copy/messages.h"
#include "rdmacomm/result.h"

namespace rdmacomm::copying {

/// Reads a file from front to back. First it compares the bytes with the sink's next block after the last match, which
/// costs one hash for each block. If that fails, it searches at each byte for any block of the sink.
/// Threads: one at a time.
class BlockSearch {
 public:
  /// Waits for the hashes of a block. Returns  why they will not arrive
  using SumsOf = std::function<Result<BlockSums>(std::uint64_t block)>;

  BlockSearch(const Have& have, SumsOf sums_of);

  /// Bytes in a block. `bytes` must have at least that length, unless the file (or the examined part of it) ends with
  /// it.
  [[nodiscard]] std::size_t block_bytes() const noexcept { return have_.block_bytes; }

  /// The first part of `bytes` that the sink has.
  struct Found {
    std::size_t at = 0;      ///< the bytes before it must be sent
    std::size_t length = 0;  ///< 0: the rest has no match either, or is too short to tell
    std::uint64_t from = 0;  ///< its offset in the sink's file
  };
  /// offset  of `bytes` in the file
  /// last    no bytes follow
  [[nodiscard]] Result<Found> next(std::uint64_t offset, std::span<const std::byte> bytes, bool last);

 private:
  [[nodiscard]] Result<std::size_t> same_at(std::uint64_t from, std::span<const std::byte> bytes);
  [[nodiscard]] Result<Found> slide(std::span<const std::byte> bytes);
  [[nodiscard]] Status make_index();

  const Have have_;
  const SumsOf sums_of_;
  std::uint64_t expected_ = 0;  // the sink's offset after the last match
  std::optional<BlockIndex> index_;
};

}  // namespace rdmacomm::copying
