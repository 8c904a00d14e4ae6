// rdma_buffer.h - named, registered memory, split into blocks.
// Layer: memory. Uses: base, verbs, device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "rdmacomm/base/result.h"
#include "rdmacomm/memory/remote_region.h"
#include "rdmacomm/verbs/handles.h"

namespace rdmacomm {

class ProtectionDomain;
class RDMADevice;

/// What peers may do with a buffer. Combine with |. The default is nothing: least privilege.
enum class RemoteAccess : std::uint8_t { kNone = 0, kRead = 1, kWrite = 2, kAtomic = 4 };
[[nodiscard]] constexpr RemoteAccess operator|(RemoteAccess a, RemoteAccess b) noexcept {
  return static_cast<RemoteAccess>(static_cast<std::uint8_t>(a) | static_cast<std::uint8_t>(b));
}
[[nodiscard]] constexpr bool allows(RemoteAccess granted, RemoteAccess asked) noexcept {
  return (static_cast<std::uint8_t>(granted) & static_cast<std::uint8_t>(asked)) == static_cast<std::uint8_t>(asked);
}

/// A range inside a registered buffer: what requests carry. A value the size of an ibv_sge, and laid out as
/// one, so that a list of slices is a scatter-gather list as it stands. Valid as long as its buffer.
struct BufferSlice {
  ibv_sge sge{};

  [[nodiscard]] std::byte* data() const noexcept { return reinterpret_cast<std::byte*>(sge.addr); }
  [[nodiscard]] std::uint32_t size() const noexcept { return sge.length; }
  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return {data(), size()}; }
  /// The first `count` bytes, count <= size(), unchecked.
  [[nodiscard]] BufferSlice first(std::uint32_t count) const noexcept { return {{sge.addr, count, sge.lkey}}; }
  /// `count` bytes from `offset` on, inside this slice, unchecked.
  [[nodiscard]] BufferSlice part(std::uint32_t offset, std::uint32_t count) const noexcept {
    return {{sge.addr + offset, count, sge.lkey}};
  }
};
static_assert(sizeof(BufferSlice) == sizeof(ibv_sge));

struct BufferOptions {
  std::string name = "buffer";     ///< for messages, and for publishing to peers
  std::size_t block_bytes = 4096;  ///< 1..4 GiB - 1
  std::size_t block_count = 1;     ///< >= 1
  RemoteAccess remote_access = RemoteAccess::kNone;
  bool huge_pages = false;  ///< from the system's huge page pool, or fail; never silently without
  /// Not pinned: the device brings pages in as it needs them, and the locked-memory limit does not count.
  bool on_demand_paging = false;

  [[nodiscard]] Status validate() const;
};

/// Registered memory of block_count blocks of block_bytes each, side by side. A resource: neither copyable
/// nor movable. Local write access is always granted.
/// Threads: all functions but next() from any thread; next() from one thread at a time.
/// Lifetime: must not outlive its RDMADevice; outlives every request that uses it (until its completion).
class RDMABuffer {
 public:
  /// Allocates zeroed, page-aligned memory that this device reaches best, and registers it.
  ///
  /// Returns  kInvalidArgument: options.validate(); kBeyondDeviceLimit: larger than one registration may be;
  ///          kLockedMemoryLimit: RLIMIT_MEMLOCK is too small (the context has both numbers and the remedy);
  ///          kNotSupported: remote atomics, or on-demand paging, on a device that has none;
  ///          std::errc::not_enough_memory: no memory, or no huge pages (the context says how to get some)
  [[nodiscard]] static Result<std::unique_ptr<RDMABuffer>> allocate(RDMADevice& device, const BufferOptions& options);
  /// Registers memory of the caller's, who keeps owning it and keeps it mapped while this object lives.
  ///
  /// memory   not empty. options.block_bytes x block_count must equal its size; huge_pages must be false
  /// Returns  as allocate(); std::errc::bad_address: not mapped, or not writable
  /// Cost     soft0 reaches such memory by system calls (process_vm_writev), not by loads and stores
  [[nodiscard]] static Result<std::unique_ptr<RDMABuffer>> adopt(RDMADevice& device, std::span<std::byte> memory,
                                                                 const BufferOptions& options);
  /// The same in a protection domain, which the buffer keeps alive: for endpoints of that HcaConfig::domain. Memory that
  /// endpoints of several domains use is allocated once, and adopted once in each of them.
  [[nodiscard]] static Result<std::unique_ptr<RDMABuffer>> allocate(std::shared_ptr<ProtectionDomain> domain,
                                                                    const BufferOptions& options);
  [[nodiscard]] static Result<std::unique_ptr<RDMABuffer>> adopt(std::shared_ptr<ProtectionDomain> domain,
                                                                 std::span<std::byte> memory,
                                                                 const BufferOptions& options);
  RDMABuffer(const RDMABuffer&) = delete;
  RDMABuffer& operator=(const RDMABuffer&) = delete;
  ~RDMABuffer();

  [[nodiscard]] const std::string& name() const noexcept { return options_.name; }
  [[nodiscard]] std::byte* data() const noexcept { return memory_.data(); }
  [[nodiscard]] std::size_t size() const noexcept { return memory_.size(); }
  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return memory_; }
  [[nodiscard]] std::size_t block_bytes() const noexcept { return options_.block_bytes; }
  [[nodiscard]] std::size_t block_count() const noexcept { return options_.block_count; }

  /// Block `index`, 0..block_count() - 1 (anything else is a bug of the caller's and ends the program).
  [[nodiscard]] BufferSlice at(std::size_t index) const;
  /// The blocks in turn: 0, 1, ..., block_count() - 1, 0, ...
  [[nodiscard]] BufferSlice next() noexcept;
  /// The last block.
  [[nodiscard]] BufferSlice last() const { return at(block_count() - 1); }
  /// `length` bytes from `offset` on. kInvalidArgument: they leave the buffer, or exceed 4 GiB - 1.
  [[nodiscard]] Result<BufferSlice> slice(std::size_t offset, std::size_t length) const;

  /// What a peer needs to reach this buffer. It can do there what options.remote_access grants.
  [[nodiscard]] RemoteRegion remote_region() const noexcept;
  [[nodiscard]] RemoteAccess remote_access() const noexcept { return options_.remote_access; }
  [[nodiscard]] std::uint32_t lkey() const noexcept { return mr_->lkey; }
  /// The protection domain that it is registered in.
  [[nodiscard]] ibv_pd* pd() const noexcept { return pd_; }

 private:
  /// Where a buffer is registered.
  struct Place {
    RDMADevice& device;
    std::shared_ptr<ProtectionDomain> domain;  ///< nullptr: the device's own
    ibv_pd* pd;
  };
  static Place place_in(std::shared_ptr<ProtectionDomain> domain);
  static Place place_on(RDMADevice& device);
  static Result<std::unique_ptr<RDMABuffer>> allocate_at(Place place, const BufferOptions& options);
  static Result<std::unique_ptr<RDMABuffer>> adopt_at(Place place, std::span<std::byte> memory,
                                                      const BufferOptions& options);
  RDMABuffer(Place place, BufferOptions options, std::span<std::byte> memory, bool owns_memory);
  static Result<std::unique_ptr<RDMABuffer>> register_memory(std::unique_ptr<RDMABuffer> buffer);

  RDMADevice& device_;
  const std::shared_ptr<ProtectionDomain> domain_;
  ibv_pd* const pd_;
  const BufferOptions options_;
  std::span<std::byte> memory_;
  bool owns_memory_;
  verbs::MrHandle mr_;
  std::size_t next_ = 0;
};

}  // namespace rdmacomm
