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
enum class RemoteAccess : std::uint8_t {
  kNone = 0,    ///< no access
  kRead = 1,    ///< READ
  kWrite = 2,   ///< WRITE, with and without an immediate
  kAtomic = 4,  ///< fetch_add and compare_swap
};
/// All operations of `a` and of `b`.
[[nodiscard]] constexpr RemoteAccess operator|(RemoteAccess a, RemoteAccess b) noexcept {
  return static_cast<RemoteAccess>(static_cast<std::uint8_t>(a) | static_cast<std::uint8_t>(b));
}
/// Whether `granted` has all operations of `asked`; always true if `asked` is kNone.
[[nodiscard]] constexpr bool allows(RemoteAccess granted, RemoteAccess asked) noexcept {
  return (static_cast<std::uint8_t>(granted) & static_cast<std::uint8_t>(asked)) == static_cast<std::uint8_t>(asked);
}

/// A range inside a registered buffer. Requests carry slices. A value; valid while its buffer lives. Its layout is that
/// of an ibv_sge, so that a list of slices can be used as a scatter-gather list without copying.
struct RDMACOMM_API BufferSlice {
  std::uint64_t address = 0;  ///< local virtual address of the first byte
  std::uint32_t length = 0;   ///< bytes
  std::uint32_t lkey = 0;     ///< the key of the registration, which the local device checks

  /// The first byte; nullptr for a default-constructed slice.
  [[nodiscard]] std::byte* data() const noexcept { return reinterpret_cast<std::byte*>(address); }
  /// The number of bytes: `length`.
  [[nodiscard]] std::uint32_t size() const noexcept { return length; }
  /// The memory, for reading and writing by the CPU.
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

/// The options of a buffer. A value.
struct RDMACOMM_API BufferOptions {
  std::string name = "buffer";                       ///< used in error texts, and as the name under which peers find it
  std::size_t block_bytes = 4096;                    ///< size of each block: 1..4 GiB - 1
  std::size_t block_count = 1;                       ///< number of blocks, at least 1
  RemoteAccess remote_access = RemoteAccess::kNone;  ///< the operations that peers may do, on the whole buffer
  bool huge_pages = false;  ///< uses the system's huge page pool; fails if the pool has too few
  /// The memory is not pinned: the device loads pages when it needs them, and the locked-memory limit does not apply.
  bool on_demand_paging = false;

  /// Checks the values without a device.
  ///
  /// Returns  kInvalidArgument: block_bytes or block_count is outside its range, or all blocks together exceed the
  ///          address space. The context names the buffer and the value
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
  /// Takes the registration of `other`, which is then empty. Slices of it stay valid.
  RDMABuffer(RDMABuffer&& other) noexcept;
  /// The same. The registration that this object had ends, as with the destructor.
  RDMABuffer& operator=(RDMABuffer&& other) noexcept;
  /// Ends the registration, and frees the memory unless it was adopted. No request may still use it.
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
  /// device   an open device
  /// memory   not empty, writable
  /// options  block_bytes x block_count must equal the size of `memory`; huge_pages must be false
  /// Returns  as allocate(); std::errc::bad_address: not mapped, or not writable
  /// Cost     soft0 reaches such memory by system calls (process_vm_writev), not by loads and stores
  [[nodiscard]] static Result<RDMABuffer> adopt(const RDMADevice& device, std::span<std::byte> memory,
                                                const BufferOptions& options);
  /// As allocate() on a device, in a protection domain, for endpoints whose HcaConfig::domain is this one. Memory that
  /// endpoints of several domains use is allocated once, and adopted once in each of the domains.
  [[nodiscard]] static Result<RDMABuffer> allocate(const ProtectionDomain& domain, const BufferOptions& options);
  /// As adopt() on a device, in a protection domain.
  [[nodiscard]] static Result<RDMABuffer> adopt(const ProtectionDomain& domain, std::span<std::byte> memory,
                                                const BufferOptions& options);

  /// Whether it has memory. False: default-constructed or moved from.
  explicit operator bool() const noexcept { return core_ != nullptr; }
  /// The name from the options; "" for an empty buffer. The reference is valid while the registration lives.
  [[nodiscard]] const std::string& name() const noexcept;
  [[nodiscard]] std::byte* data() const noexcept { return memory_.data(); }      ///< the first byte of block 0
  [[nodiscard]] std::size_t size() const noexcept { return memory_.size(); }     ///< bytes of all blocks together
  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return memory_; }  ///< all blocks, one after the other
  [[nodiscard]] std::size_t block_bytes() const noexcept;  ///< bytes of each block; 0 for an empty buffer
  [[nodiscard]] std::size_t block_count() const noexcept;  ///< number of blocks; 0 for an empty buffer

  /// Block `index`, 0..block_count() - 1. Any other index is a bug in the program and ends it.
  [[nodiscard]] BufferSlice at(std::size_t index) const;
  /// The next block in cyclic order: 0, 1, ..., block_count() - 1, 0, ... The buffer does not know whether a request
  /// still uses that block. On an empty buffer, a call is a bug in the program and ends it.
  [[nodiscard]] BufferSlice next();
  /// The last block. On an empty buffer, a call is a bug in the program and ends it.
  [[nodiscard]] BufferSlice last() const { return at(block_count() - 1); }
  /// `length` bytes from `offset` on, independent of the blocks.
  ///
  /// Returns  kInvalidArgument: the range is not inside the buffer, or has 4 GiB or more
  [[nodiscard]] Result<BufferSlice> slice(std::size_t offset, std::size_t length) const;

  /// The address, length and rkey that a peer needs to access this buffer. remote_access() says which operations the
  /// peer may do. All zero for an empty buffer.
  [[nodiscard]] RemoteRegion remote_region() const noexcept;
  /// The operations that peers may do, from the options; kNone for an empty buffer.
  [[nodiscard]] RemoteAccess remote_access() const noexcept;
  /// The key that local requests need. The slices of the buffer have it. 0 for an empty buffer.
  [[nodiscard]] std::uint32_t lkey() const noexcept;
  /// The device that the memory is registered on; an empty handle for an empty buffer.
  [[nodiscard]] RDMADevice device() const noexcept;
  /// The protection domain in which it is registered; empty: the device's own domain.
  [[nodiscard]] ProtectionDomain domain() const noexcept;

 private:
  RDMACOMM_LOCAL explicit RDMABuffer(std::unique_ptr<BufferCore> core) noexcept;

  std::unique_ptr<BufferCore> core_;
  std::span<std::byte> memory_;
};

}  // namespace rdmacomm
