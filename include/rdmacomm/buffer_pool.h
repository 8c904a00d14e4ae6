// buffer_pool.h - registered memory in blocks of many sizes; taking a block registers nothing.
// Layer: memory. Uses: base.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "rdmacomm/buffer.h"
#include "rdmacomm/handle.h"
#include "rdmacomm/remote_region.h"
#include "rdmacomm/result.h"

namespace rdmacomm {

class RDMACOMM_API BufferPoolCore;
template <>
inline constexpr const char* detail::kHandleName<BufferPoolCore> = "BufferPool";

/// The options of a pool. A value.
struct RDMACOMM_API BufferPoolOptions {
  std::string name = "pool";  ///< used in error texts
  std::size_t total_bytes = std::size_t{64}
                            << 20;    ///< registered when the pool is created: a multiple of largest_block
  std::size_t smallest_block = 4096;  ///< a power of two, 64..largest_block
  std::size_t largest_block = std::size_t{4} << 20;  ///< a power of two, at most 2 GiB
  /// Bytes of free blocks of each size in a cache of the thread, at most 32 blocks; 0: none. Threads share 32 caches.
  std::size_t cached_bytes = std::size_t{256} << 10;
  /// Granted on the whole pool. The rkey of a block is in BufferLease::remote_region().
  RemoteAccess remote_access = RemoteAccess::kNone;
  bool huge_pages = false;  ///< as BufferOptions::huge_pages

  /// Checks the values without a device.
  ///
  /// Returns  kInvalidArgument: the context names the field, the value and the bound
  [[nodiscard]] Status validate() const;
};

/// Counters of a pool. A value.
struct RDMACOMM_API BufferPoolCounts {
  std::uint64_t taken = 0;       ///< leases that were taken
  std::uint64_t given_back = 0;  ///< leases that were given back
  std::uint64_t from_cache = 0;  ///< leases that a thread took from its own cache, without the shared lock
  std::uint64_t refused = 0;     ///< calls of take() that returned kPoolExhausted
  std::uint64_t reclaimed = 0;   ///< times that a take() emptied the caches of all threads
  std::size_t leased_bytes = 0;  ///< leased at present, in whole blocks
  std::size_t total_bytes = 0;   ///< as BufferPoolOptions::total_bytes
};

/// A block of a pool, until it is given back: by reset(), by the destructor, or by assigning another lease. A handle:
/// movable, not copyable.
///
/// Threads   one thread at a time; it need not be the thread that took the block
/// Lifetime  may outlive its pool. The memory stays registered, and the device open, until the last lease is given back
/// ABI       the layout of its members is fixed, because most calls are inlined
class RDMACOMM_API BufferLease {
 public:
  BufferLease() = default;  ///< holds nothing
  /// Takes the block of `other`, which then holds nothing.
  BufferLease(BufferLease&& other) noexcept
      : core_(std::exchange(other.core_, nullptr)),
        slice_(std::exchange(other.slice_, {})),
        rkey_(std::exchange(other.rkey_, 0)),
        unit_(other.unit_),
        order_(other.order_) {}
  /// The same, after reset() of this lease.
  BufferLease& operator=(BufferLease&& other) noexcept;
  ~BufferLease() { reset(); }  ///< reset()

  /// Gives the block back. No request may still use it. No effect on an empty lease.
  /// Cost  no allocation or system call; takes the pool's lock only if the thread's cache is full
  void reset() noexcept {
    if (core_ != nullptr) give_back();
  }
  /// Whether it holds a block.
  explicit operator bool() const noexcept { return core_ != nullptr; }

  /// The bytes of the lease, for requests: the number that was given to take(). Empty if it holds nothing.
  [[nodiscard]] const BufferSlice& slice() const noexcept { return slice_; }
  [[nodiscard]] std::byte* data() const noexcept { return slice_.data(); }  ///< the first byte; nullptr: holds nothing
  [[nodiscard]] std::uint32_t size() const noexcept { return slice_.size(); }  ///< the number that was given to take()
  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return slice_.bytes(); }  ///< the memory of slice()
  /// The address, length and rkey that a peer needs to access these bytes. The pool's remote_access says which
  /// operations the peer may do.
  [[nodiscard]] RemoteRegion remote_region() const noexcept { return {slice_.address, slice_.length, rkey_}; }

 private:
  friend class BufferPoolCore;
  void give_back() noexcept;

  BufferPoolCore* core_ = nullptr;
  BufferSlice slice_{};
  std::uint32_t rkey_ = 0;
  std::uint32_t unit_ = 0;   // where the block begins, in smallest blocks
  std::uint32_t order_ = 0;  // its size is smallest_block << order_
};

/// Registered memory for messages whose number and sizes are not known in advance. All of it is registered when the
/// pool is created, and nothing later. The pool halves larger blocks to get smaller ones, and joins free neighbours
/// again. Each thread keeps some free blocks of each size for itself. A handle: copies share the pool.
///
/// Threads   any thread
/// Lifetime  keeps its device open. It may be destroyed before its leases, see BufferLease
class RDMACOMM_API BufferPool : public detail::SharedHandle<BufferPoolCore> {
 public:
  using SharedHandle::SharedHandle;

  /// Allocates and registers the memory of a pool. Cost: as RDMABuffer::allocate() of total_bytes.
  ///
  /// Returns  as BufferPoolOptions::validate and RDMABuffer::allocate
  [[nodiscard]] static Result<BufferPool> create(const RDMADevice& device, const BufferPoolOptions& options = {});
  /// The same in a protection domain, for endpoints whose HcaConfig::domain is this one.
  [[nodiscard]] static Result<BufferPool> create(const ProtectionDomain& domain, const BufferPoolOptions& options = {});

  /// The options that it was created with. The reference is valid while the pool lives.
  [[nodiscard]] const BufferPoolOptions& options() const;
  /// The device that its memory is registered on.
  [[nodiscard]] RDMADevice device() const;
  /// The protection domain in which its memory is registered; empty: the device's own domain.
  [[nodiscard]] ProtectionDomain domain() const;

  /// Leases a block of at least `bytes`. The sizes of blocks are smallest_block times a power of two. The block still
  /// contains the data of its last lease.
  ///
  /// bytes   1..largest_block
  /// Errors  kInvalidArgument: bytes; kPoolExhausted: no block of that size is free, in the caches of other threads
  ///         either: give blocks back, and try again
  /// Cost    no allocation or system call; takes the pool's lock only if the thread's cache is full
  [[nodiscard]] Result<BufferLease> take(std::size_t bytes) const;

  /// The counters now. Cost: takes the pool's lock and that of each cache, so do not call it for each message.
  [[nodiscard]] BufferPoolCounts counts() const;
};

}  // namespace rdmacomm
