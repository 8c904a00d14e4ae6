#include "rdma_copy/block_search.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace rdmacomm::copying {

BlockSearch::BlockSearch(const Have& have, SumsOf sums_of) : have_(have), sums_of_(std::move(sums_of)) {}

/// The number of first bytes that are equal to the sink's block at `from`, which must be the start of a block; else 0.
Result<std::size_t> BlockSearch::same_at(std::uint64_t from, std::span<const std::byte> bytes) {
  if (from >= have_.size || from % have_.block_bytes != 0) return std::size_t{0};
  const auto length = static_cast<std::size_t>(std::min<std::uint64_t>(have_.block_bytes, have_.size - from));
  if (bytes.size() < length) return std::size_t{0};
  const auto theirs = sums_of_(from / have_.block_bytes);
  if (!theirs) return theirs.error();
  return theirs->hash == hash_of(bytes.first(length)) ? length : 0;
}

Result<BlockSearch::Found> BlockSearch::next(std::uint64_t offset, std::span<const std::byte> bytes, bool last) {
  const bool in_place = have_.base == Have::Base::kPartial;
  Found found{.from = in_place ? offset : expected_};
  for (;;) {
    const auto length = same_at(found.from, bytes);
    if (!length) return length.error();
    found.length = *length;
    if (found.length > 0 || found.from == offset) break;
    found.from = offset;
  }
  if (found.length == 0 && in_place) {
    // Only blocks at the same offset can be used, so continue with the next block.
    found = {.at = std::min<std::size_t>(bytes.size(), have_.block_bytes - offset % have_.block_bytes)};
  } else if (found.length == 0) {
    auto slid = slide(bytes);
    if (!slid) return slid;
    found = *slid;
    const std::uint64_t tail = have_.size % have_.block_bytes;
    if (found.length == 0 && last && tail > 0 && bytes.size() >= tail) {
      // The sink's last block is short, so it can only be found at the end of the file.
      const auto length = same_at(have_.size - tail, bytes.last(static_cast<std::size_t>(tail)));
      if (!length) return length.error();
      if (*length > 0) found = {.at = bytes.size() - *length, .length = *length, .from = have_.size - tail};
    }
    if (found.length == 0 && last) found.at = bytes.size();
  }
  if (found.length > 0) expected_ = found.from + found.length;
  return found;
}

Result<BlockSearch::Found> BlockSearch::slide(std::span<const std::byte> bytes) {
  const std::size_t block = have_.block_bytes;
  if (bytes.size() < block) return Found{};
  if (Status made = make_index(); !made.ok()) return made.error();
  RollingSum sum(bytes.first(block));
  for (std::size_t at = 0;; ++at) {
    if (index_->may_have(sum.value())) {
      if (const auto known = index_->find(sum.value(), bytes.subspan(at, block))) {
        return Found{.at = at, .length = block, .from = *known * block};
      }
    }
    if (at + block == bytes.size()) return Found{.at = at + 1};
    sum.roll(bytes[at], bytes[at + block]);
  }
}

/// Built at the first use. All sums must have arrived then.
Status BlockSearch::make_index() {
  if (index_) return {};
  std::vector<BlockSums> all;
  for (std::uint64_t block = 0; block < have_.size / have_.block_bytes; ++block) {
    const auto sums = sums_of_(block);
    if (!sums) return sums.error();
    all.push_back(*sums);
  }
  index_.emplace(all);
  return {};
}

}  // namespace rdmacomm::copying
