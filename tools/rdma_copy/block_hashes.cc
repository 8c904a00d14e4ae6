#include "rdma_copy/block_hashes.h"

#include <xxhash.h>

// Selects the code for this processor at run time.
#if defined(__x86_64__) && __has_include(<xxh_x86dispatch.h>)
#include <xxh_x86dispatch.h>
#endif

#include <algorithm>
#include <cstring>
#include <utility>

namespace rdmacomm::copying {

BlockHash hash_of(std::span<const std::byte> block) noexcept {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(block.data(), block.size()));
  BlockHash hash;
  static_assert(sizeof(canonical) == sizeof(hash));
  std::memcpy(hash.data(), &canonical, sizeof(hash));
  return hash;
}

RollingSum::RollingSum(std::span<const std::byte> window) noexcept
    : length_(static_cast<std::uint32_t>(window.size())) {
  constexpr std::uint32_t kAtOnce = 32;  // the compiler vectorizes this loop
  while (window.size() >= kAtOnce) {
    std::uint32_t sum = 0;
    std::uint32_t weighted = 0;
    for (std::uint32_t i = 0; i < kAtOnce; ++i) {
      const auto byte = static_cast<std::uint32_t>(window[i]);
      sum += byte;
      weighted += (kAtOnce - i) * byte;
    }
    weighted_ += kAtOnce * sum_ + weighted;
    sum_ += sum;
    window = window.subspan(kAtOnce);
  }
  for (const std::byte byte : window) {
    sum_ += static_cast<std::uint32_t>(byte);
    weighted_ += sum_;
  }
}

BlockSums sums_of(std::span<const std::byte> block) noexcept {
  return {.rolling = RollingSum(block).value(), .hash = hash_of(block)};
}

BlockIndex::BlockIndex(std::span<const BlockSums> blocks) : filter_((std::size_t{1} << kFilterBits) / 64) {
  known_.reserve(blocks.size());
  for (std::uint32_t block = 0; block < blocks.size(); ++block) {
    known_.push_back({.rolling = blocks[block].rolling, .block = block, .hash = blocks[block].hash});
    const std::uint32_t bit = bit_of(blocks[block].rolling);
    filter_[bit / 64] |= std::uint64_t{1} << bit % 64;
  }
  std::sort(known_.begin(), known_.end(), [](const Known& one, const Known& other) {
    return std::pair(one.rolling, one.block) < std::pair(other.rolling, other.block);
  });
}

std::optional<std::uint64_t> BlockIndex::find(std::uint32_t rolling, std::span<const std::byte> bytes) const {
  // At most this number of different blocks with one sum is tried. More exist only if somebody made them on purpose.
  constexpr int kMaxTried = 8;
  auto at = std::lower_bound(known_.begin(), known_.end(), rolling,
                             [](const Known& known, std::uint32_t wanted) { return known.rolling < wanted; });
  if (at == known_.end() || at->rolling != rolling) return {};
  const BlockHash hash = hash_of(bytes);
  for (int tried = 0; tried < kMaxTried && at != known_.end() && at->rolling == rolling; ++tried, ++at) {
    if (at->hash == hash) return at->block;
  }
  return {};
}

}  // namespace rdmacomm::copying
