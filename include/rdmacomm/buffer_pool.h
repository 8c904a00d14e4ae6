// buffer_pool.h - registered memory in blocks of many sizes, to be had without registering any.
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

/// What a pool is made with. A value.
struct RDMACOMM_API BufferPoolOptions {
  std::string name = "pool";                          ///< for messages
  std::size_t total_bytes = std::size_t{64} << 20;    ///< registered when the pool is made: a multiple of largest_block
  std::size_t smallest_block = 4096;                  ///< a power of two, 64..largest_block
  std::size_t largest_block = std::size_t{4} << 20;   ///< a power of two, at most 2 GiB
  std::size_t cached_bytes = std::size_t{256} << 10;  ///< free blocks kept for each thread, of each size; 0: none
  RemoteAccess remote_access = RemoteAccess::kNone;   ///< to all of it: of a peer that has one rkey, too
  bool huge_pages = false;                            ///< as BufferOptions::huge_pages

  /// kInvalidArgument: the context names the field, the value and the bound.
  [[nodiscard]] Status validate() const;
};

/// What a pool has done. A value.
struct RDMACOMM_API BufferPoolCounts {
  std::uint64_t taken = 0;       ///< leases given out
  std::uint64_t given_back = 0;  ///< of these
  std::uint64_t from_cache = 0;  ///< of those taken: without the lock of all threads
  std::uint64_t refused = 0;     ///< take() that has returned kPoolExhausted
  std::uint64_t reclaimed = 0;   ///< how often the caches of all threads were emptied for one
  std::size_t leased_bytes = 0;  ///< now, in whole blocks
  std::size_t total_bytes = 0;   ///< as BufferPoolOptions::total_bytes
};

/// A block of a pool, until it is given back: by reset(), by the destructor, or by another lease that is moved here. A
/// handle: it moves, and does not copy.
/// Threads: one at a time; any, also another than the one that took it.
/// Lifetime: may outlive its pool. The memory stays registered, and its device open, until the last lease is given
/// back.
/// ABI: its members' layout, since most calls are inlined.
class RDMACOMM_API BufferLease {
 public:
  BufferLease() = default;  ///< holds nothing
  BufferLease(BufferLease&& other) noexcept
      : core_(std::exchange(other.core_, nullptr)),
        slice_(std::exchange(other.slice_, {})),
        rkey_(std::exchange(other.rkey_, 0)),
        unit_(other.unit_),
        order_(other.order_) {}
  BufferLease& operator=(BufferLease&& other) noexcept;
  ~BufferLease() { reset(); }

  /// Gives the block back. No request may be using it any more. Without effect where there is none.
  /// Cost  no allocation or system call; the lock that all threads share once per refill of the thread's cache
  void reset() noexcept {
    if (core_ != nullptr) give_back();
  }
  /// Whether it holds a block.
  explicit operator bool() const noexcept { return core_ != nullptr; }

  /// As many bytes as were asked for.
  [[nodiscard]] const BufferSlice& slice() const noexcept { return slice_; }
  [[nodiscard]] std::byte* data() const noexcept { return slice_.data(); }
  [[nodiscard]] std::uint32_t size() const noexcept { return slice_.size(); }
  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return slice_.bytes(); }
  /// What a peer needs to reach these bytes: it can do there what the pool's remote_access grants.
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

/// Registered memory for messages whose number and sizes are not known beforehand. All of it is registered when the
/// pool is made, and nothing later. Smaller blocks are made by halving larger ones; free neighbours are joined again.
/// Each thread keeps some free blocks of each size for itself. A handle: copies share the pool.
///
/// Threads   all functions from any
/// Lifetime  keeps its device open. It may go before its leases, see BufferLease
class RDMACOMM_API BufferPool : public detail::SharedHandle<BufferPoolCore> {
 public:
  using SharedHandle::SharedHandle;

  /// Returns  as BufferPoolOptions::validate and RDMABuffer::allocate
  [[nodiscard]] static Result<BufferPool> create(const RDMADevice& device, const BufferPoolOptions& options = {});
  /// The same in a protection domain: for endpoints of that HcaConfig::domain.
  [[nodiscard]] static Result<BufferPool> create(const ProtectionDomain& domain, const BufferPoolOptions& options = {});

  [[nodiscard]] const BufferPoolOptions& options() const;
  [[nodiscard]] RDMADevice device() const;
  /// Where its memory is registered; empty: in the device's own domain.
  [[nodiscard]] ProtectionDomain domain() const;

  /// Leases a block of at least `bytes`. Blocks have sizes of smallest_block times a power of two. Their bytes are
  /// those that the last lease left there.
  ///
  /// bytes   1..largest_block
  /// Errors  kInvalidArgument: bytes; kPoolExhausted: no block of that size is free, not in the caches of other threads
  ///         either: give some back, and try again
  /// Cost    no allocation or system call; takes the lock that all threads share once per refill of the thread's cache
  [[nodiscard]] Result<BufferLease> take(std::size_t bytes) const;

  [[nodiscard]] BufferPoolCounts counts() const;
};

}  // namespace rdmacomm
