// buffer_pool_core.h - the state that a BufferPool and its leases share.
// Layer: memory, internal.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/spin_lock.h"
#include "device/device_core.h"
#include "device/protection_domain_core.h"
#include "memory/buddy_blocks.h"
#include "rdmacomm/buffer_pool.h"

namespace rdmacomm {

/// Lives until the pool and all leases are destroyed, then deletes itself.
///
/// Free blocks are in `blocks_` or in the caches. Most machines have fewer cores than kCaches. Each thread uses one
/// cache, alone if the process has at most kCaches threads, so it does not wait for the cache's lock. The lock lets
/// other threads take blocks out of the cache if `blocks_` is empty.
class BufferPoolCore {
 public:
  [[nodiscard]] static Result<std::unique_ptr<BufferPoolCore>> create(const RDMADevice& device,
                                                                      const ProtectionDomain& domain,
                                                                      const BufferPoolOptions& options);

  [[nodiscard]] const BufferPoolOptions& options() const noexcept { return options_; }
  [[nodiscard]] const RDMADevice& device() const noexcept { return device_; }
  [[nodiscard]] const ProtectionDomain& domain() const noexcept { return domain_; }
  [[nodiscard]] Result<BufferLease> take(std::size_t bytes) noexcept;
  void give_back(std::uint32_t unit, std::uint32_t order) noexcept;
  [[nodiscard]] BufferPoolCounts counts() noexcept;
  /// The pool is destroyed. Called once, after the last take().
  void abandon() noexcept;

 private:
  static constexpr std::size_t kCaches = 32;
  static constexpr std::uint32_t kMaxCached = 32;  // blocks of each size

  struct alignas(64) Cache {
    SpinLock lock;
    bool pool_left = false;
    std::uint64_t taken = 0;
    std::uint64_t from_cache = 0;
    std::uint64_t given_back = 0;
    std::int64_t leased_units = 0;      // taken here, less those given back here
    std::vector<std::uint32_t> counts;  // of cached blocks, by order
    std::vector<std::uint32_t> units;   // kMaxCached for each order

    void push(std::uint32_t unit, std::uint32_t order) noexcept { units[order * kMaxCached + counts[order]++] = unit; }
    [[nodiscard]] std::uint32_t pop(std::uint32_t order) noexcept {
      return units[order * kMaxCached + --counts[order]];
    }
    void note_taken(std::uint32_t order) noexcept {
      ++taken;
      leased_units += std::int64_t{1} << order;
    }
    void note_given_back(std::uint32_t order) noexcept {
      ++given_back;
      leased_units -= std::int64_t{1} << order;
    }
  };

  /// One registration.
  struct Slab {
    RDMABuffer memory;
    std::uint32_t lkey = 0;
    std::uint32_t rkey = 0;
  };

  BufferPoolCore(const RDMADevice& device, const ProtectionDomain& domain, const BufferPoolOptions& options);
  [[nodiscard]] Status register_slabs();
  [[nodiscard]] Cache& mine() noexcept;
  [[nodiscard]] std::uint32_t order_for(std::size_t bytes) const noexcept;
  [[nodiscard]] std::uint32_t cache_limit(std::uint32_t order) const noexcept;
  [[nodiscard]] std::uint32_t take_shared(std::uint32_t order, Cache& cache) noexcept;
  void give_back_shared(std::uint32_t unit, std::uint32_t order, Cache& cache) noexcept;
  void reclaim() noexcept;
  void drop_references(std::int64_t count) noexcept;

  const RDMADevice device_;
  const ProtectionDomain domain_;  // empty: the device's own
  const BufferPoolOptions options_;
  const std::uint32_t unit_shift_;  // log2 of smallest_block
  const std::uint32_t top_order_;
  std::size_t slab_units_ = 0;  // of each slab except the last
  std::vector<Slab> slabs_;
  std::array<Cache, kCaches> caches_;

  SpinLock lock_;  // guards the members below; may be held when a cache's lock is taken, never the reverse
  BuddyBlocks blocks_;
  std::uint64_t refused_ = 0;
  std::uint64_t reclaimed_ = 0;

  // While the pool exists it holds this number of references, so that no lease can drop the last one.
  static constexpr std::int64_t kPoolReference = std::int64_t{1} << 62;
  std::atomic<std::int64_t> references_{kPoolReference};
};

}  // namespace rdmacomm
