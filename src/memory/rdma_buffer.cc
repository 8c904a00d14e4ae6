#include "rdmacomm/memory/rdma_buffer.h"

#include <sys/resource.h>

#include <limits>

#include "rdmacomm/base/result.h"
#include "rdmacomm/device/protection_domain.h"
#include "rdmacomm/device/rdma_device.h"
#include "rdmacomm/verbs/call.h"

namespace rdmacomm {
namespace {

constexpr std::size_t kMaxSliceBytes = std::numeric_limits<std::uint32_t>::max();  // ibv_sge::length has 32 bits

// "64 MiB" where that is exact enough to act on, else bytes.
std::string size_text(std::uint64_t bytes) {
  constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
  if (bytes >= kMiB) return std::to_string(bytes / kMiB) + " MiB";
  return std::to_string(bytes) + " bytes";
}

int access_flags(const BufferOptions& options) {
  const RemoteAccess remote = options.remote_access;
  // Local write is always in: the device requires it for remote writes and atomics, and a READ's or a
  // receive's payload needs it too.
  int flags = IBV_ACCESS_LOCAL_WRITE;
  if (allows(remote, RemoteAccess::kRead)) flags |= IBV_ACCESS_REMOTE_READ;
  if (allows(remote, RemoteAccess::kWrite)) flags |= IBV_ACCESS_REMOTE_WRITE;
  if (allows(remote, RemoteAccess::kAtomic)) flags |= IBV_ACCESS_REMOTE_ATOMIC;
  if (options.on_demand_paging) flags |= IBV_ACCESS_ON_DEMAND;
  return flags;
}

// Says why a registration failed: out of memory is, nearly always, the limit on locked memory.
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
                        " for all its registrations; raise it with `ulimit -l unlimited` before the start, or for "
                        "good by a memlock line in /etc/security/limits.conf");
}

Error allocation_error(const Error& cause, const BufferOptions& options) {
  if (!options.huge_pages) return cause;
  return make_error(cause.code, cause.context +
                                    ": the pool has not enough free huge pages; reserve some with "
                                    "`echo N > /proc/sys/vm/nr_hugepages` (as root), or do without");
}

Status check_device(const RDMADevice& device, const BufferOptions& options) {
  const std::size_t bytes = options.block_bytes * options.block_count;
  if (bytes > device.limits().max_region_bytes) {
    return make_error(Errc::kBeyondDeviceLimit, "buffer \"" + options.name + "\" of " + std::to_string(bytes) +
                                                    " bytes is beyond the largest registration of " + device.to_text() +
                                                    ", " + std::to_string(device.limits().max_region_bytes) + " bytes");
  }
  if (allows(options.remote_access, RemoteAccess::kAtomic) && !device.limits().atomics) {
    return make_error(Errc::kNotSupported, device.to_text() + " has no atomics; buffer \"" + options.name +
                                               "\" cannot grant RemoteAccess::kAtomic");
  }
  if (options.on_demand_paging && !device.limits().on_demand_paging.supported) {
    return make_error(Errc::kNotSupported,
                      device.to_text() + " has no on-demand paging; buffer \"" + options.name + "\" must be pinned");
  }
  return {};
}

}  // namespace

Status BufferOptions::validate() const {
  const auto wrong = [this](const std::string& what) {
    return make_error(Errc::kInvalidArgument, "buffer \"" + name + "\": " + what);
  };
  if (block_bytes < 1 || block_bytes > kMaxSliceBytes) {
    return wrong("block_bytes is 1 to " + std::to_string(kMaxSliceBytes) + ", not " + std::to_string(block_bytes));
  }
  if (block_count < 1) return wrong("block_count is at least 1, not 0");
  if (block_count > std::numeric_limits<std::size_t>::max() / block_bytes) {
    return wrong(std::to_string(block_count) + " blocks of " + std::to_string(block_bytes) +
                 " bytes are more than the address space");
  }
  return {};
}

RDMABuffer::Place RDMABuffer::place_in(std::shared_ptr<ProtectionDomain> domain) {
  RDMADevice& device = *domain->device();
  ibv_pd* const pd = domain->pd();
  return {.device = device, .domain = std::move(domain), .pd = pd};
}

RDMABuffer::Place RDMABuffer::place_on(RDMADevice& device) {
  return {.device = device, .domain = nullptr, .pd = device.pd()};
}

RDMABuffer::RDMABuffer(Place place, BufferOptions options, std::span<std::byte> memory, bool owns_memory)
    : device_(place.device),
      domain_(std::move(place.domain)),
      pd_(place.pd),
      options_(std::move(options)),
      memory_(memory),
      owns_memory_(owns_memory) {}

RDMABuffer::~RDMABuffer() {
  mr_.reset();
  if (owns_memory_) {
    device_.api().free_memory(device_.context(), memory_.data(), memory_.size(), options_.huge_pages);
  }
}

Result<std::unique_ptr<RDMABuffer>> RDMABuffer::allocate(RDMADevice& device, const BufferOptions& options) {
  return allocate_at(place_on(device), options);
}
Result<std::unique_ptr<RDMABuffer>> RDMABuffer::allocate(std::shared_ptr<ProtectionDomain> domain,
                                                         const BufferOptions& options) {
  return allocate_at(place_in(std::move(domain)), options);
}
Result<std::unique_ptr<RDMABuffer>> RDMABuffer::adopt(RDMADevice& device, std::span<std::byte> memory,
                                                      const BufferOptions& options) {
  return adopt_at(place_on(device), memory, options);
}
Result<std::unique_ptr<RDMABuffer>> RDMABuffer::adopt(std::shared_ptr<ProtectionDomain> domain,
                                                      std::span<std::byte> memory, const BufferOptions& options) {
  return adopt_at(place_in(std::move(domain)), memory, options);
}

Result<std::unique_ptr<RDMABuffer>> RDMABuffer::allocate_at(Place place, const BufferOptions& options) {
  RDMADevice& device = place.device;
  if (Status status = options.validate(); !status.ok()) return status.error();
  if (Status status = check_device(device, options); !status.ok()) return status.error();
  const std::size_t bytes = options.block_bytes * options.block_count;
  const std::string what = "allocate " + size_text(bytes) + (options.huge_pages ? " of huge pages" : "") +
                           " for buffer \"" + options.name + "\"";
  const auto memory = verbs::from_null(device.api().allocate_memory(device.context(), bytes, options.huge_pages), what);
  if (!memory) return allocation_error(memory.error(), options);
  const std::span<std::byte> bytes_of(static_cast<std::byte*>(*memory), bytes);
  return register_memory(std::unique_ptr<RDMABuffer>(new RDMABuffer(std::move(place), options, bytes_of, true)));
}

Result<std::unique_ptr<RDMABuffer>> RDMABuffer::adopt_at(Place place, std::span<std::byte> memory,
                                                         const BufferOptions& options) {
  if (Status status = options.validate(); !status.ok()) return status.error();
  const std::size_t bytes = options.block_bytes * options.block_count;
  if (memory.size() != bytes || options.huge_pages) {
    return make_error(Errc::kInvalidArgument,
                      "buffer \"" + options.name + "\": adopting " + std::to_string(memory.size()) +
                          " bytes takes block_bytes x block_count equal to that, not " + std::to_string(bytes) +
                          ", and huge_pages false: what pages it has is up to its owner");
  }
  if (Status status = check_device(place.device, options); !status.ok()) return status.error();
  return register_memory(std::unique_ptr<RDMABuffer>(new RDMABuffer(std::move(place), options, memory, false)));
}

Result<std::unique_ptr<RDMABuffer>> RDMABuffer::register_memory(std::unique_ptr<RDMABuffer> buffer) {
  const verbs::Api& api = buffer->device_.api();
  const std::string what = "buffer \"" + buffer->name() + "\" on " + buffer->device_.to_text();
  const std::string action = "register " + size_text(buffer->size()) + " for " + what;
  const int access = access_flags(buffer->options_);
  const auto mr = verbs::from_null(api.reg_mr(buffer->pd(), buffer->data(), buffer->size(), access), action);
  if (!mr) return registration_error(mr.error(), what, buffer->size());
  buffer->mr_ = verbs::MrHandle(api, *mr);
  return buffer;
}

BufferSlice RDMABuffer::at(std::size_t index) const {
  if (index >= block_count()) [[unlikely]] {
    const std::string what =
        "RDMABuffer::at(): buffer \"" + name() + "\" has no such block as " + std::to_string(index);
    detail::die_of_misuse(what.c_str(), nullptr);
  }
  return {{reinterpret_cast<std::uintptr_t>(data()) + index * block_bytes(), static_cast<std::uint32_t>(block_bytes()),
           mr_->lkey}};
}

BufferSlice RDMABuffer::next() noexcept {
  const BufferSlice block = at(next_);
  next_ = next_ + 1 == block_count() ? 0 : next_ + 1;
  return block;
}

Result<BufferSlice> RDMABuffer::slice(std::size_t offset, std::size_t length) const {
  if (offset > size() || length > size() - offset || length > kMaxSliceBytes) {
    return make_error(Errc::kInvalidArgument, std::to_string(length) + " bytes from offset " + std::to_string(offset) +
                                                  " on are not inside buffer \"" + name() + "\" of " +
                                                  std::to_string(size()) + " bytes, or exceed 4 GiB - 1");
  }
  return BufferSlice{
      {reinterpret_cast<std::uintptr_t>(data()) + offset, static_cast<std::uint32_t>(length), mr_->lkey}};
}

RemoteRegion RDMABuffer::remote_region() const noexcept {
  return {reinterpret_cast<std::uintptr_t>(data()), size(), mr_->rkey};
}

}  // namespace rdmacomm
