// block_search.h - which parts of a file the sink has already, wherever it has them.
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

/// Goes over a file from front to back. First it looks whether the sink goes on where it was the same last, which costs
/// a hash for each block; only where that ends, at each byte, for a block that it has anywhere.
/// Threads: one.
class BlockSearch {
 public:
  /// Waits for what is known of a block. Returns  why it will not be known
  using SumsOf = std::function<Result<BlockSums>(std::uint64_t block)>;

  BlockSearch(const Have& have, SumsOf sums_of);

  /// Bytes in a block: as many are to be in `bytes`, at least, unless the file (or what is looked at of it) ends with
  /// them.
  [[nodiscard]] std::size_t block_bytes() const noexcept { return have_.block_bytes; }

  /// Where in `bytes` something is that the sink has.
  struct Found {
    std::size_t at = 0;      ///< before that there is nothing: it is to be sent
    std::size_t length = 0;  ///< 0: nor is there anything behind, but what is too short to tell
    std::uint64_t from = 0;  ///< where the sink has it
  };
  /// offset  of `bytes` in the file
  /// last    nothing is behind `bytes`
  [[nodiscard]] Result<Found> next(std::uint64_t offset, std::span<const std::byte> bytes, bool last);

 private:
  [[nodiscard]] Result<std::size_t> same_at(std::uint64_t from, std::span<const std::byte> bytes);
  [[nodiscard]] Result<Found> slide(std::span<const std::byte> bytes);
  [[nodiscard]] Status make_index();

  const Have have_;
  const SumsOf sums_of_;
  std::uint64_t expected_ = 0;  // where the sink goes on, if it is as before
  std::optional<BlockIndex> index_;
};

}  // namespace rdmacomm::copying
