// buffer.h - named, registered memory, split into blocks.
// Layer: memory. Uses: base, device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "rdmacomm/device.h"
#include "rdmacomm/remote_region.h"
#include "rdmacomm/result.h"

namespace rdmacomm {

class RDMACOMM_API BufferCore;

/// The operations that peers may do on a buffer. Combine with |. The default allows nothing (least privilege).
enum class RemoteAccess : std::uint8_t { kNone = 0, kRead = 1, kWrite = 2, kAtomic = 4 };
[[nodiscard]] constexpr RemoteAccess operator|(RemoteAccess a, RemoteAccess b) noexcept {
  return static_cast<RemoteAccess>(static_cast<std::uint8_t>(a) | static_cast<std::uint8_t>(b));
}
[[nodiscard]] constexpr bool allows(RemoteAccess granted, RemoteAccess asked) noexcept {
  return (static_cast<std::uint8_t>(granted) & static_cast<std::uint8_t>(asked)) == static_cast<std::uint8_t>(asked);
}

/// A range inside a registered buffer. Requests carry slices. A value; valid while its buffer lives. Its layout is that
/// of an ibv_sge, so that a list of slices can be used as a scatter-gather list without copying.
struct RDMACOMM_API BufferSlice {
  std::uint64_t address = 0;
  std::uint32_t length = 0;
  std::uint32_t lkey = 0;

  [[nodiscard]] std::byte* data() const noexcept { return reinterpret_cast<std::byte*>(address); }
  [[nodiscard]] std::uint32_t size() const noexcept { return length; }
  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return {data(), size()}; }
  /// The first `count` bytes. A count above size() is a bug in the program and ends it.
  [[nodiscard]] BufferSlice first(std::uint32_t count) const noexcept {
    if (count > length) detail::die_of_misuse("BufferSlice::first(): more bytes than the slice has", nullptr);
    return {address, count, lkey};
  }
  /// `count` bytes from `offset` on; the caller guarantees that they are inside this slice.
  [[nodiscard]] BufferSlice slice_unchecked(std::uint32_t offset, std::uint32_t count) const noexcept {
    return {address + offset, count, lkey};
  }
};
static_assert(sizeof(BufferSlice) == 16);

struct RDMACOMM_API BufferOptions {
  std::string name = "buffer";     ///< used in error texts, and as the name under which peers find it
  std::size_t block_bytes = 4096;  ///< 1..4 GiB - 1
  std::size_t block_count = 1;     ///< >= 1
  RemoteAccess remote_access = RemoteAccess::kNone;
  bool huge_pages = false;  ///< uses the system's huge page pool; fails if the pool has too few
  /// The memory is not pinned: the device loads pages when it needs them, and the locked-memory limit does not apply.
  bool on_demand_paging = false;

  [[nodiscard]] Status validate() const;
};

/// Registered memory: block_count adjacent blocks of block_bytes each. Local write access is always granted. Movable,
/// not copyable; moving the object does not move the memory.
///
/// Threads   any thread; next() by one thread at a time
/// Lifetime  keeps its device open. It must outlive every request that uses it, until the request's completion
/// ABI       the layout of its members is fixed, because data() and other calls are inlined
class RDMACOMM_API RDMABuffer {
 public:
  /// An empty buffer: data() is nullptr, size() is 0, block_count() is 0.
  RDMABuffer() noexcept;
  RDMABuffer(RDMABuffer&& other) noexcept;
  RDMABuffer& operator=(RDMABuffer&& other) noexcept;
  ~RDMABuffer();

  /// Allocates zeroed, page-aligned memory, of the kind that this device accesses fastest, and registers it.
  ///
  /// Returns  kInvalidArgument: options.validate(); kBeyondDeviceLimit: larger than one registration may be;
  ///          kLockedMemoryLimit: RLIMIT_MEMLOCK is too small (the context has both numbers and the remedy);
  ///          kNotSupported: remote atomics or on-demand paging, and the device does not have them;
  ///          std::errc::not_enough_memory: no memory, or no huge pages (the context says how to get some)
  [[nodiscard]] static Result<RDMABuffer> allocate(const RDMADevice& device, const BufferOptions& options);
  /// Registers memory that the caller owns. The caller keeps it mapped while this object lives.
  ///
  /// memory   not empty. options.block_bytes x block_count must equal its size; huge_pages must be false
  /// Returns  as allocate(); std::errc::bad_address: not mapped, or not writable
  /// Cost     soft0 reaches such memory by system calls (process_vm_writev), not by loads and stores
  [[nodiscard]] static Result<RDMABuffer> adopt(const RDMADevice& device, std::span<std::byte> memory,
                                                const BufferOptions& options);
  /// The same in a protection domain, for endpoints whose HcaConfig::domain is this one. Memory that endpoints of
  /// several domains use is allocated once, and adopted once in each of the domains.
  [[nodiscard]] static Result<RDMABuffer> allocate(const ProtectionDomain& domain, const BufferOptions& options);
  [[nodiscard]] static Result<RDMABuffer> adopt(const ProtectionDomain& domain, std::span<std::byte> memory,
                                                const BufferOptions& options);

  explicit operator bool() const noexcept { return core_ != nullptr; }  ///< whether it has memory
  [[nodiscard]] const std::string& name() const noexcept;
  [[nodiscard]] std::byte* data() const noexcept { return memory_.data(); }
  [[nodiscard]] std::size_t size() const noexcept { return memory_.size(); }
  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return memory_; }
  [[nodiscard]] std::size_t block_bytes() const noexcept;
  [[nodiscard]] std::size_t block_count() const noexcept;

  /// Block `index`, 0..block_count() - 1. Any other index is a bug in the program and ends it.
  [[nodiscard]] BufferSlice at(std::size_t index) const;
  /// The next block in cyclic order: 0, 1, ..., block_count() - 1, 0, ...
  [[nodiscard]] BufferSlice next();
  /// The last block.
  [[nodiscard]] BufferSlice last() const { return at(block_count() - 1); }
  /// `length` bytes from `offset` on. kInvalidArgument: the range is not inside the buffer, or is longer than 4 GiB -
  /// 1.
  [[nodiscard]] Result<BufferSlice> slice(std::size_t offset, std::size_t length) const;

  /// The address, length and rkey that a peer needs to access this buffer. options.remote_access says which operations
  /// the peer may do.
  [[nodiscard]] RemoteRegion remote_region() const noexcept;
  [[nodiscard]] RemoteAccess remote_access() const noexcept;
  [[nodiscard]] std::uint32_t lkey() const noexcept;
  [[nodiscard]] RDMADevice device() const noexcept;
  /// The protection domain in which it is registered; empty: the device's own domain.
  [[nodiscard]] ProtectionDomain domain() const noexcept;

 private:
  RDMACOMM_LOCAL explicit RDMABuffer(std::unique_ptr<BufferCore> core) noexcept;

  std::unique_ptr<BufferCore> core_;
  std::span<std::byte> memory_;
};

}  // namespace rdmacomm
