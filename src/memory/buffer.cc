#include "rdmacomm/buffer.h"

#include <sys/resource.h>

#include <limits>

#include "device/device_core.h"
#include "device/protection_domain_core.h"
#include "rdmacomm/handle.h"
#include "rdmacomm/result.h"
#include "verbs/call.h"

namespace rdmacomm {
namespace {

constexpr std::size_t kMaxSliceBytes = std::numeric_limits<std::uint32_t>::max();  // ibv_sge::length has 32 bits

// "64 MiB", or bytes if it is less than 1 MiB.
std::string size_text(std::uint64_t bytes) {
  constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
  if (bytes >= kMiB) return std::to_string(bytes / kMiB) + " MiB";
  return std::to_string(bytes) + " bytes";
}

int access_flags(const BufferOptions& options) {
  const RemoteAccess remote = options.remote_access;
  // Local write is always set: the device requires it for remote writes and atomics, and the payload of a READ or a
  // receive needs it too.
  int flags = IBV_ACCESS_LOCAL_WRITE;
  if (allows(remote, RemoteAccess::kRead)) flags |= IBV_ACCESS_REMOTE_READ;
  if (allows(remote, RemoteAccess::kWrite)) flags |= IBV_ACCESS_REMOTE_WRITE;
  if (allows(remote, RemoteAccess::kAtomic)) flags |= IBV_ACCESS_REMOTE_ATOMIC;
  if (options.on_demand_paging) flags |= IBV_ACCESS_ON_DEMAND;
  return flags;
}

// Explains why a registration failed. The error "out of memory" nearly always means the limit on locked memory.
Error registration_error(const Error& cause, const std::string& what, std::size_t bytes) {
  if (cause.code == std::errc::bad_address) {
    return make_error(cause.code, cause.context + ": the memory is not mapped, or not writable");
  }
  rlimit limit{};
  const bool limited = getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  if (cause.code != std::errc::not_enough_memory || !limited) return cause;
  return make_error(Errc::kLockedMemoryLimit,
                    "cannot register " + size_text(bytes) + " for " + what +
                        ": the locked-memory limit (RLIMIT_MEMLOCK) of this process is " + size_text(limit.rlim_cur) +
                        " for all its registrations; raise it with `ulimit -l unlimited` before the start, or "
                        "permanently with a memlock line in /etc/security/limits.conf");
}

Error allocation_error(const Error& cause, const BufferOptions& options) {
  if (!options.huge_pages) return cause;
  return make_error(cause.code, cause.context +
                                    ": the system does not have enough free huge pages; reserve some with "
                                    "`echo N > /proc/sys/vm/nr_hugepages` (as root), or set huge_pages to false");
}

Status check_device(const DeviceCore& device, const BufferOptions& options) {
  const std::size_t bytes = options.block_bytes * options.block_count;
  if (bytes > device.limits().max_region_bytes) {
    return make_error(Errc::kBeyondDeviceLimit, "buffer \"" + options.name + "\" of " + std::to_string(bytes) +
                                                    " bytes is larger than the largest registration of " +
                                                    device.to_text() + ", " +
                                                    std::to_string(device.limits().max_region_bytes) + " bytes");
  }
  if (allows(options.remote_access, RemoteAccess::kAtomic) && !device.limits().atomics) {
    return make_error(Errc::kNotSupported, device.to_text() + " supports no atomic operations; buffer \"" +
                                               options.name + "\" cannot grant RemoteAccess::kAtomic");
  }
  if (options.on_demand_paging && !device.limits().on_demand_paging.supported) {
    return make_error(Errc::kNotSupported, device.to_text() + " supports no on-demand paging; buffer \"" +
                                               options.name + "\" must be pinned");
  }
  return {};
}

}  // namespace

Status BufferOptions::validate() const {
  const auto wrong = [this](const std::string& what) {
    return make_error(Errc::kInvalidArgument, "buffer \"" + name + "\": " + what);
  };
  if (block_bytes < 1 || block_bytes > kMaxSliceBytes) {
    return wrong("block_bytes is " + std::to_string(block_bytes) + "; it must be 1.." + std::to_string(kMaxSliceBytes));
  }
  if (block_count < 1) return wrong("block_count is 0; it must be at least 1");
  if (block_count > std::numeric_limits<std::size_t>::max() / block_bytes) {
    return wrong(std::to_string(block_count) + " blocks of " + std::to_string(block_bytes) +
                 " bytes exceed the address space");
  }
  return {};
}

/// A registration, and its memory if the library owns it.
class BufferCore {
 public:
  /// The device and the protection domain that a buffer is registered in.
  struct Place {
    std::shared_ptr<DeviceCore> device;
    std::shared_ptr<ProtectionDomainCore> domain;  // nullptr: the device's own

    [[nodiscard]] ibv_pd* pd() const noexcept { return domain ? domain->pd() : device->pd(); }
  };

  static Result<Place> place_of(const RDMADevice& device) {
    if (!device)
      return make_error(Errc::kInvalidArgument, "a buffer needs an open device; the given RDMADevice is empty");
    return Place{.device = device.core(), .domain = nullptr};
  }
  static Result<Place> place_of(const ProtectionDomain& domain) {
    if (!domain)
      return make_error(Errc::kInvalidArgument,
                        "a buffer needs a protection domain; the given ProtectionDomain is empty");
    return Place{.device = domain.core()->device(), .domain = domain.core()};
  }
  static Result<std::unique_ptr<BufferCore>> allocate(Result<Place> place, const BufferOptions& options);
  static Result<std::unique_ptr<BufferCore>> adopt(Result<Place> place, std::span<std::byte> memory,
                                                   const BufferOptions& options);
  BufferCore(const BufferCore&) = delete;
  BufferCore& operator=(const BufferCore&) = delete;
  ~BufferCore() {
    mr_.reset();
    if (!owns_memory_) return;
    DeviceCore& device = *place_.device;
    device.api().free_memory(device.context(), memory_.data(), memory_.size(), options_.huge_pages);
  }

  [[nodiscard]] const Place& place() const noexcept { return place_; }
  [[nodiscard]] const BufferOptions& options() const noexcept { return options_; }
  [[nodiscard]] std::span<std::byte> memory() const noexcept { return memory_; }
  [[nodiscard]] const ibv_mr& registration() const noexcept { return *mr_.get(); }
  [[nodiscard]] BufferSlice slice(std::size_t offset, std::size_t length) const noexcept {
    return {reinterpret_cast<std::uintptr_t>(memory_.data()) + offset, static_cast<std::uint32_t>(length), mr_->lkey};
  }
  std::size_t next = 0;  ///< the block that RDMABuffer::next() returns

 private:
  BufferCore(Place place, BufferOptions options, std::span<std::byte> memory, bool owns_memory)
      : place_(std::move(place)), options_(std::move(options)), memory_(memory), owns_memory_(owns_memory) {}
  static Result<std::unique_ptr<BufferCore>> registered(std::unique_ptr<BufferCore> buffer);

  const Place place_;
  const BufferOptions options_;
  const std::span<std::byte> memory_;
  const bool owns_memory_;
  verbs::MrHandle mr_;
};

Result<std::unique_ptr<BufferCore>> BufferCore::allocate(Result<Place> place, const BufferOptions& options) {
  if (!place) return place.error();
  DeviceCore& device = *place->device;
  if (Status status = options.validate(); !status.ok()) return status.error();
  if (Status status = check_device(device, options); !status.ok()) return status.error();
  const std::size_t bytes = options.block_bytes * options.block_count;
  const std::string what = "allocate " + size_text(bytes) + (options.huge_pages ? " of huge pages" : "") +
                           " for buffer \"" + options.name + "\"";
  const auto memory = verbs::from_null(device.api().allocate_memory(device.context(), bytes, options.huge_pages), what);
  if (!memory) return allocation_error(memory.error(), options);
  const std::span<std::byte> bytes_of(static_cast<std::byte*>(*memory), bytes);
  return registered(std::unique_ptr<BufferCore>(new BufferCore(std::move(*place), options, bytes_of, true)));
}

Result<std::unique_ptr<BufferCore>> BufferCore::adopt(Result<Place> place, std::span<std::byte> memory,
                                                      const BufferOptions& options) {
  if (!place) return place.error();
  if (Status status = options.validate(); !status.ok()) return status.error();
  const std::size_t bytes = options.block_bytes * options.block_count;
  if (memory.size() != bytes || options.huge_pages) {
    return make_error(Errc::kInvalidArgument,
                      "buffer \"" + options.name + "\": to adopt " + std::to_string(memory.size()) +
                          " bytes of memory, block_bytes x block_count must be the same number, not " +
                          std::to_string(bytes) +
                          ", and huge_pages must be false: the owner of the memory has chosen its pages");
  }
  if (Status status = check_device(*place->device, options); !status.ok()) return status.error();
  return registered(std::unique_ptr<BufferCore>(new BufferCore(std::move(*place), options, memory, false)));
}

Result<std::unique_ptr<BufferCore>> BufferCore::registered(std::unique_ptr<BufferCore> buffer) {
  const DeviceCore& device = *buffer->place_.device;
  const std::span<std::byte> memory = buffer->memory_;
  const std::string what = "buffer \"" + buffer->options_.name + "\" on " + device.to_text();
  const std::string action = "register " + size_text(memory.size()) + " for " + what;
  const int access = access_flags(buffer->options_);
  const auto mr =
      verbs::from_null(device.api().reg_mr(buffer->place_.pd(), memory.data(), memory.size(), access), action);
  if (!mr) return registration_error(mr.error(), what, memory.size());
  buffer->mr_ = verbs::MrHandle(device.api(), *mr);
  return buffer;
}

RDMABuffer::RDMABuffer() noexcept = default;
RDMABuffer::RDMABuffer(std::unique_ptr<BufferCore> core) noexcept : core_(std::move(core)), memory_(core_->memory()) {}
RDMABuffer::RDMABuffer(RDMABuffer&& other) noexcept
    : core_(std::move(other.core_)), memory_(std::exchange(other.memory_, {})) {}
RDMABuffer& RDMABuffer::operator=(RDMABuffer&& other) noexcept {
  core_ = std::move(other.core_);
  memory_ = std::exchange(other.memory_, {});
  if (core_) memory_ = core_->memory();
  return *this;
}
RDMABuffer::~RDMABuffer() = default;

Result<RDMABuffer> RDMABuffer::allocate(const RDMADevice& device, const BufferOptions& options) {
  auto core = BufferCore::allocate(BufferCore::place_of(device), options);
  if (!core) return std::move(core).error();
  return RDMABuffer(std::move(core).value());
}

Result<RDMABuffer> RDMABuffer::allocate(const ProtectionDomain& domain, const BufferOptions& options) {
  auto core = BufferCore::allocate(BufferCore::place_of(domain), options);
  if (!core) return std::move(core).error();
  return RDMABuffer(std::move(core).value());
}

Result<RDMABuffer> RDMABuffer::adopt(const RDMADevice& device, std::span<std::byte> memory,
                                     const BufferOptions& options) {
  auto core = BufferCore::adopt(BufferCore::place_of(device), memory, options);
  if (!core) return std::move(core).error();
  return RDMABuffer(std::move(core).value());
}

Result<RDMABuffer> RDMABuffer::adopt(const ProtectionDomain& domain, std::span<std::byte> memory,
                                     const BufferOptions& options) {
  auto core = BufferCore::adopt(BufferCore::place_of(domain), memory, options);
  if (!core) return std::move(core).error();
  return RDMABuffer(std::move(core).value());
}

const std::string& RDMABuffer::name() const noexcept {
  static const std::string none;
  return core_ ? core_->options().name : none;
}

std::size_t RDMABuffer::block_bytes() const noexcept {
  return core_ ? core_->options().block_bytes : 0;
}

std::size_t RDMABuffer::block_count() const noexcept {
  return core_ ? core_->options().block_count : 0;
}

BufferSlice RDMABuffer::at(std::size_t index) const {
  if (index >= block_count()) [[unlikely]] {
    if (!core_) detail::die_of_misuse_of_empty("RDMABuffer");
    const std::string what = "RDMABuffer::at(): buffer \"" + name() + "\" has " + std::to_string(block_count()) +
                             (block_count() == 1 ? " block" : " blocks") + "; block " + std::to_string(index) +
                             " does not exist";
    detail::die_of_misuse(what.c_str(), nullptr);
  }
  const std::size_t bytes = core_->options().block_bytes;
  return core_->slice(index * bytes, bytes);
}

BufferSlice RDMABuffer::next() {
  const std::size_t index = core_ ? core_->next : 0;
  const BufferSlice block = at(index);
  core_->next = index + 1 == block_count() ? 0 : index + 1;
  return block;
}

Result<BufferSlice> RDMABuffer::slice(std::size_t offset, std::size_t length) const {
  if (!core_ || offset > size() || length > size() - offset || length > kMaxSliceBytes) {
    return make_error(Errc::kInvalidArgument, std::to_string(length) + " bytes from offset " + std::to_string(offset) +
                                                  " are not inside buffer \"" + name() + "\" of " +
                                                  std::to_string(size()) + " bytes, or exceed 4 GiB - 1");
  }
  return core_->slice(offset, length);
}

RemoteRegion RDMABuffer::remote_region() const noexcept {
  if (!core_) return {};
  return {reinterpret_cast<std::uintptr_t>(data()), size(), core_->registration().rkey};
}

RemoteAccess RDMABuffer::remote_access() const noexcept {
  return core_ ? core_->options().remote_access : RemoteAccess::kNone;
}

std::uint32_t RDMABuffer::lkey() const noexcept {
  return core_ ? core_->registration().lkey : 0;
}

RDMADevice RDMABuffer::device() const noexcept {
  return core_ ? RDMADevice(core_->place().device) : RDMADevice();
}

ProtectionDomain RDMABuffer::domain() const noexcept {
  return core_ ? ProtectionDomain(core_->place().domain) : ProtectionDomain();
}

}  // namespace rdmacomm
