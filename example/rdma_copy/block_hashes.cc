#include "rdma_copy/block_hashes.h"

#include <xxhash.h>

// Chooses by what the processor has.
#if defined(__x86_64__) && __has_include(<xxh_x86dispatch.h>)
#include <xxh_x86dispatch.h>
#endif

#include <cstring>

namespace rdmacomm::copying {

BlockHash hash_of(std::span<const std::byte> block) noexcept {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(block.data(), block.size()));
  BlockHash hash;
  static_assert(sizeof(canonical) == sizeof(hash));
  std::memcpy(hash.data(), &canonical, sizeof(hash));
  return hash;
}

}  // namespace rdmacomm::copying
