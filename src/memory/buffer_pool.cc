#include "rdmacomm/buffer_pool.h"

#include <algorithm>
#include <bit>
#include <mutex>

#include "memory/buffer_pool_core.h"

namespace rdmacomm {
namespace {

constexpr std::size_t kMinBlock = 64;  // a cache line: blocks may belong to different threads
constexpr std::size_t kMaxBlock = std::size_t{1} << 31;

std::uint32_t log2_of(std::size_t power) {
  return static_cast<std::uint32_t>(std::countr_zero(power));
}

/// Threads are numbered in the order of their first call, for all pools together.
std::size_t thread_number() noexcept {
  static std::atomic<std::size_t> next{0};
  thread_local const std::size_t number = next.fetch_add(1, std::memory_order_relaxed);
  return number;
}

}  // namespace

Status BufferPoolOptions::validate() const {
  const auto wrong = [this](const std::string& what) {
    return make_error(Errc::kInvalidArgument, "buffer pool \"" + name + "\": " + what);
  };
  if (!std::has_single_bit(largest_block) || largest_block > kMaxBlock) {
    return wrong("largest_block is " + std::to_string(largest_block) + "; it must be a power of two of at most " +
                 std::to_string(kMaxBlock));
  }
  if (!std::has_single_bit(smallest_block) || smallest_block < kMinBlock || smallest_block > largest_block) {
    return wrong("smallest_block is " + std::to_string(smallest_block) + "; it must be a power of two from " +
                 std::to_string(kMinBlock) + " to largest_block (" + std::to_string(largest_block) + ")");
  }
  if (total_bytes == 0 || total_bytes % largest_block != 0) {
    return wrong("total_bytes is " + std::to_string(total_bytes) + "; it must be a multiple of largest_block (" +
                 std::to_string(largest_block) + "), and at least that");
  }
  if (total_bytes / smallest_block > BuddyBlocks::kNone / 2) {
    return wrong("total_bytes (" + std::to_string(total_bytes) + ") is more than 2^31 blocks of smallest_block");
  }
  return {};
}

// The lease -----------------------------------------------------------------------------------------------------------

BufferLease& BufferLease::operator=(BufferLease&& other) noexcept {
  if (this == &other) return *this;
  reset();
  core_ = std::exchange(other.core_, nullptr);
  slice_ = std::exchange(other.slice_, {});
  rkey_ = std::exchange(other.rkey_, 0);
  unit_ = other.unit_;
  order_ = other.order_;
  return *this;
}

void BufferLease::give_back() noexcept {
  slice_ = {};
  rkey_ = 0;
  std::exchange(core_, nullptr)->give_back(unit_, order_);
}

// The pool ------------------------------------------------------------------------------------------------------------

namespace {

Result<BufferPool> make_pool(const RDMADevice& device, const ProtectionDomain& domain,
                             const BufferPoolOptions& options) {
  if (Status valid = options.validate(); !valid) return valid.error();
  if (!device)
    return make_error(Errc::kInvalidArgument, "a buffer pool needs an open device; the given RDMADevice is empty");
  auto core = BufferPoolCore::create(device, domain, options);
  if (!core) return core.error();
  // The core deletes itself with the last lease.
  return BufferPool(std::shared_ptr<BufferPoolCore>(core->release(), [](BufferPoolCore* pool) { pool->abandon(); }));
}

}  // namespace

Result<BufferPool> BufferPool::create(const RDMADevice& device, const BufferPoolOptions& options) {
  return make_pool(device, {}, options);
}
Result<BufferPool> BufferPool::create(const ProtectionDomain& domain, const BufferPoolOptions& options) {
  return make_pool(domain ? domain.device() : RDMADevice(), domain, options);
}
const BufferPoolOptions& BufferPool::options() const {
  return object().options();
}
RDMADevice BufferPool::device() const {
  return object().device();
}
ProtectionDomain BufferPool::domain() const {
  return object().domain();
}
Result<BufferLease> BufferPool::take(std::size_t bytes) const {
  return object().take(bytes);
}
BufferPoolCounts BufferPool::counts() const {
  return object().counts();
}

// Shared by the pool and its leases -----------------------------------------------------------------------------------

BufferPoolCore::BufferPoolCore(const RDMADevice& device, const ProtectionDomain& domain,
                               const BufferPoolOptions& options)
    : device_(device),
      domain_(domain),
      options_(options),
      unit_shift_(log2_of(options.smallest_block)),
      top_order_(log2_of(options.largest_block) - unit_shift_),
      blocks_(static_cast<std::uint32_t>(options.total_bytes >> unit_shift_), top_order_) {
  for (Cache& cache : caches_) {
    cache.counts.assign(top_order_ + 1, 0);
    cache.units.assign((top_order_ + 1) * kMaxCached, 0);
  }
}

Result<std::unique_ptr<BufferPoolCore>> BufferPoolCore::create(const RDMADevice& device, const ProtectionDomain& domain,
                                                               const BufferPoolOptions& options) {
  std::unique_ptr<BufferPoolCore> core(new BufferPoolCore(device, domain, options));
  if (Status made = core->register_slabs(); !made) return made.error();
  return core;
}

/// Uses as few registrations as the device's largest region allows. No block spans two registrations.
Status BufferPoolCore::register_slabs() {
  const std::size_t block = options_.largest_block;
  const std::size_t most = std::max<std::size_t>(1, device_.limits().max_region_bytes / block);
  const std::size_t all = options_.total_bytes / block;
  slab_units_ = std::min(most, all) * block >> unit_shift_;
  for (std::size_t done = 0; done < all; done += most) {
    const BufferOptions of_slab{.name = options_.name,
                                .block_bytes = block,
                                .block_count = std::min(most, all - done),
                                .remote_access = options_.remote_access,
                                .huge_pages = options_.huge_pages};
    auto slab = domain_ ? RDMABuffer::allocate(domain_, of_slab) : RDMABuffer::allocate(device_, of_slab);
    if (!slab) return slab.status();
    const std::uint32_t lkey = slab->lkey();
    const std::uint32_t rkey = slab->remote_region().rkey;
    slabs_.push_back({.memory = std::move(*slab), .lkey = lkey, .rkey = rkey});
  }
  return {};
}

BufferPoolCore::Cache& BufferPoolCore::mine() noexcept {
  return caches_[thread_number() % kCaches];
}

std::uint32_t BufferPoolCore::order_for(std::size_t bytes) const noexcept {
  const std::size_t units = ((bytes - 1) >> unit_shift_) + 1;
  return log2_of(std::bit_ceil(units));
}

std::uint32_t BufferPoolCore::cache_limit(std::uint32_t order) const noexcept {
  const std::size_t fit = options_.cached_bytes >> (unit_shift_ + order);
  return static_cast<std::uint32_t>(std::min<std::size_t>(fit, kMaxCached));
}

Result<BufferLease> BufferPoolCore::take(std::size_t bytes) noexcept {
  if (bytes == 0 || bytes > options_.largest_block) return Error{Errc::kInvalidArgument, {}};
  const std::uint32_t order = order_for(bytes);
  Cache& cache = mine();
  std::uint32_t unit = BuddyBlocks::kNone;
  {
    const std::lock_guard lock(cache.lock);
    if (cache.counts[order] > 0) {
      unit = cache.pop(order);
      ++cache.from_cache;
      cache.note_taken(order);
    }
  }
  if (unit == BuddyBlocks::kNone) unit = take_shared(order, cache);
  if (unit == BuddyBlocks::kNone) return Error{Errc::kPoolExhausted, {}};
  const Slab& slab = slabs_[unit / slab_units_];
  std::byte* const at = slab.memory.data() + (static_cast<std::size_t>(unit % slab_units_) << unit_shift_);
  BufferLease lease;
  lease.core_ = this;
  lease.slice_ = {reinterpret_cast<std::uintptr_t>(at), static_cast<std::uint32_t>(bytes), slab.lkey};
  lease.rkey_ = slab.rkey;
  lease.unit_ = unit;
  lease.order_ = order;
  return lease;
}

/// Takes one block for the caller. If `blocks_` has enough without a reclaim(), also takes some for the cache.
std::uint32_t BufferPoolCore::take_shared(std::uint32_t order, Cache& cache) noexcept {
  const std::lock_guard lock(lock_);
  std::uint32_t extra = cache_limit(order) / 2;
  std::uint32_t unit = blocks_.take(order);
  if (unit == BuddyBlocks::kNone) {
    reclaim();
    extra = 0;
    unit = blocks_.take(order);
  }
  if (unit == BuddyBlocks::kNone) {
    ++refused_;
    return unit;
  }
  const std::lock_guard cache_lock(cache.lock);
  cache.note_taken(order);
  for (; extra > 0 && cache.counts[order] < kMaxCached; --extra) {
    const std::uint32_t more = blocks_.take(order);
    if (more == BuddyBlocks::kNone) break;
    cache.push(more, order);
  }
  return unit;
}

/// Returns all cached blocks, because they may keep a large block from being joined.
void BufferPoolCore::reclaim() noexcept {
  ++reclaimed_;
  for (Cache& cache : caches_) {
    const std::lock_guard lock(cache.lock);
    for (std::uint32_t order = 0; order <= top_order_; ++order) {
      while (cache.counts[order] > 0) blocks_.give_back(cache.pop(order), order);
    }
  }
}

void BufferPoolCore::give_back(std::uint32_t unit, std::uint32_t order) noexcept {
  Cache& cache = mine();
  {
    const std::lock_guard lock(cache.lock);
    if (!cache.pool_left && cache.counts[order] < cache_limit(order)) {
      cache.push(unit, order);
      return cache.note_given_back(order);
    }
  }
  give_back_shared(unit, order, cache);
}

/// Returns the caller's block and, if the cache is over half of its limit, the excess.
void BufferPoolCore::give_back_shared(std::uint32_t unit, std::uint32_t order, Cache& cache) noexcept {
  bool pool_left = false;
  {
    const std::lock_guard lock(lock_);
    blocks_.give_back(unit, order);
    const std::lock_guard cache_lock(cache.lock);
    pool_left = cache.pool_left;
    if (!pool_left) cache.note_given_back(order);
    for (std::uint32_t half = cache_limit(order) / 2; cache.counts[order] > half;) {
      blocks_.give_back(cache.pop(order), order);
    }
  }
  if (pool_left) drop_references(1);
}

BufferPoolCounts BufferPoolCore::counts() noexcept {
  const std::lock_guard lock(lock_);
  BufferPoolCounts sum{.refused = refused_, .reclaimed = reclaimed_, .total_bytes = options_.total_bytes};
  std::int64_t units = 0;
  for (Cache& cache : caches_) {
    const std::lock_guard cache_lock(cache.lock);
    sum.taken += cache.taken;
    sum.given_back += cache.given_back;
    sum.from_cache += cache.from_cache;
    units += cache.leased_units;
  }
  sum.leased_bytes = static_cast<std::size_t>(std::max<std::int64_t>(units, 0)) << unit_shift_;
  return sum;
}

/// Blocks that are given back before a cache is marked with pool_left are counted by that cache. Each later one drops a
/// reference.
void BufferPoolCore::abandon() noexcept {
  std::int64_t leased = 0;
  {
    // A thread whose give_back() is counted in the sum has released its locks, so it does not touch the pool any more.
    const std::lock_guard lock(lock_);
    for (Cache& cache : caches_) {
      const std::lock_guard cache_lock(cache.lock);
      cache.pool_left = true;
      leased += static_cast<std::int64_t>(cache.taken) - static_cast<std::int64_t>(cache.given_back);
    }
  }
  drop_references(kPoolReference - leased);
}

void BufferPoolCore::drop_references(std::int64_t count) noexcept {
  if (references_.fetch_sub(count, std::memory_order_acq_rel) == count) delete this;
}

}  // namespace rdmacomm
