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

/// What peers may do with a buffer. Combine with |. The default is nothing: least privilege.
enum class RemoteAccess : std::uint8_t { kNone = 0, kRead = 1, kWrite = 2, kAtomic = 4 };
[[nodiscard]] constexpr RemoteAccess operator|(RemoteAccess a, RemoteAccess b) noexcept {
  return static_cast<RemoteAccess>(static_cast<std::uint8_t>(a) | static_cast<std::uint8_t>(b));
}
[[nodiscard]] constexpr bool allows(RemoteAccess granted, RemoteAccess asked) noexcept {
  return (static_cast<std::uint8_t>(granted) & static_cast<std::uint8_t>(asked)) == static_cast<std::uint8_t>(asked);
}

/// A range inside a registered buffer: what requests carry. A value. Valid as long as its buffer. It is laid out as an
/// ibv_sge, so that a list of slices is a scatter-gather list as it stands.
struct RDMACOMM_API BufferSlice {
  std::uint64_t address = 0;
  std::uint32_t length = 0;
  std::uint32_t lkey = 0;

  [[nodiscard]] std::byte* data() const noexcept { return reinterpret_cast<std::byte*>(address); }
  [[nodiscard]] std::uint32_t size() const noexcept { return length; }
  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return {data(), size()}; }
  /// The first `count` bytes. More than size() is a mistake of the program, and ends it.
  [[nodiscard]] BufferSlice first(std::uint32_t count) const noexcept {
    if (count > length) detail::die_of_misuse("BufferSlice::first(): more bytes than the slice has", nullptr);
    return {address, count, lkey};
  }
  /// `count` bytes from `offset` on, inside this slice, unchecked.
  [[nodiscard]] BufferSlice slice_unchecked(std::uint32_t offset, std::uint32_t count) const noexcept {
    return {address + offset, count, lkey};
  }
};
static_assert(sizeof(BufferSlice) == 16);

struct RDMACOMM_API BufferOptions {
  std::string name = "buffer";     ///< for messages, and for publishing to peers
  std::size_t block_bytes = 4096;  ///< 1..4 GiB - 1
  std::size_t block_count = 1;     ///< >= 1
  RemoteAccess remote_access = RemoteAccess::kNone;
  bool huge_pages = false;  ///< from the system's huge page pool, or fail; never silently without
  /// Not pinned: the device brings pages in as it needs them, and the locked-memory limit does not count.
  bool on_demand_paging = false;

  [[nodiscard]] Status validate() const;
};

/// Registered memory of block_count blocks of block_bytes each, side by side. Local write access is always granted.
/// Movable, not copyable; the memory stays where it is when the buffer moves.
///
/// Threads   all functions but next() from any thread; next() from one thread at a time
/// Lifetime  keeps its device open. It must outlive every request that uses it, until the request's completion
/// ABI       its members' layout: data() and the like are inlined
class RDMACOMM_API RDMABuffer {
 public:
  /// No memory: data() is nullptr, size() 0, block_count() 0.
  RDMABuffer() noexcept;
  RDMABuffer(RDMABuffer&& other) noexcept;
  RDMABuffer& operator=(RDMABuffer&& other) noexcept;
  ~RDMABuffer();

  /// Allocates zeroed, page-aligned memory that this device reaches best, and registers it.
  ///
  /// Returns  kInvalidArgument: options.validate(); kBeyondDeviceLimit: larger than one registration may be;
  ///          kLockedMemoryLimit: RLIMIT_MEMLOCK is too small (the context has both numbers and the remedy);
  ///          kNotSupported: remote atomics, or on-demand paging, on a device that has none;
  ///          std::errc::not_enough_memory: no memory, or no huge pages (the context says how to get some)
  [[nodiscard]] static Result<RDMABuffer> allocate(const RDMADevice& device, const BufferOptions& options);
  /// Registers memory that the caller owns. The caller keeps it mapped while this object lives.
  ///
  /// memory   not empty. options.block_bytes x block_count must equal its size; huge_pages must be false
  /// Returns  as allocate(); std::errc::bad_address: not mapped, or not writable
  /// Cost     soft0 reaches such memory by system calls (process_vm_writev), not by loads and stores
  [[nodiscard]] static Result<RDMABuffer> adopt(const RDMADevice& device, std::span<std::byte> memory,
                                                const BufferOptions& options);
  /// The same in a protection domain: for endpoints of that HcaConfig::domain. Memory that endpoints of several domains
  /// use is allocated once, and adopted once in each of them.
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

  /// Block `index`, 0..block_count() - 1. Another index is a mistake of the program, and ends it.
  [[nodiscard]] BufferSlice at(std::size_t index) const;
  /// The blocks in turn: 0, 1, ..., block_count() - 1, 0, ...
  [[nodiscard]] BufferSlice next();
  /// The last block.
  [[nodiscard]] BufferSlice last() const { return at(block_count() - 1); }
  /// `length` bytes from `offset` on. kInvalidArgument: they leave the buffer, or exceed 4 GiB - 1.
  [[nodiscard]] Result<BufferSlice> slice(std::size_t offset, std::size_t length) const;

  /// What a peer needs to reach this buffer. It can do there what options.remote_access grants.
  [[nodiscard]] RemoteRegion remote_region() const noexcept;
  [[nodiscard]] RemoteAccess remote_access() const noexcept;
  [[nodiscard]] std::uint32_t lkey() const noexcept;
  [[nodiscard]] RDMADevice device() const noexcept;
  /// Where it is registered; empty: in the device's own domain.
  [[nodiscard]] ProtectionDomain domain() const noexcept;

 private:
  RDMACOMM_LOCAL explicit RDMABuffer(std::unique_ptr<BufferCore> core) noexcept;

  std::unique_ptr<BufferCore> core_;
  std::span<std::byte> memory_;
};

}  // namespace rdmacomm
