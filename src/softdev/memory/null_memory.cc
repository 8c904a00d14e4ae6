#include "softdev/memory/null_memory.h"

#include <infiniband/verbs.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>

#include "base/unique_fd.h"
#include "softdev/common/device_limits.h"
#include "softdev/shared/layout.h"

namespace rdmacomm::softdev {
namespace {

constexpr std::size_t kBytes = kMaxMessageBytes;

/// All pages are the system's page of zeroes.
std::byte* map_zeroes() noexcept {
  void* const memory = mmap(nullptr, kBytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<std::byte*>(memory);
}

/// A small file, mapped many times in a row. So the memory that a long message uses is that of the file.
std::byte* map_sink() noexcept {
  constexpr std::size_t kFile = std::size_t{4} << 20;
  static_assert(kBytes % kFile == 0);
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < kFile) return nullptr;
  const UniqueFd file(memfd_create("rdmacomm-null", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file || ftruncate(file.get(), static_cast<off_t>(kFile)) != 0) return nullptr;
  void* const all = mmap(nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (all == MAP_FAILED) return nullptr;
  auto* const start = static_cast<std::byte*>(all);
  for (std::size_t at = 0; at < kBytes; at += kFile) {
    if (mmap(start + at, kFile, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file.get(), 0) == MAP_FAILED) {
      munmap(all, kBytes);
      return nullptr;
    }
  }
  return start;
}

/// Maps the memory once. It stays until the process ends.
std::byte* mapped_once(std::atomic<std::byte*>& memory, std::byte* (*map)() noexcept) noexcept {
  std::byte* known = memory.load(std::memory_order_acquire);
  if (known != nullptr) return known;
  std::byte* const fresh = map();
  if (fresh == nullptr || memory.compare_exchange_strong(known, fresh, std::memory_order_acq_rel)) return fresh;
  munmap(fresh, kBytes);
  return known;
}

}  // namespace

std::byte* null_memory(bool writes) noexcept {
  static constinit std::atomic<std::byte*> zeroes{nullptr};
  static constinit std::atomic<std::byte*> sink{nullptr};
  return writes ? mapped_once(sink, map_sink) : mapped_once(zeroes, map_zeroes);
}

Registration null_registration(std::uint32_t pd) noexcept {
  Registration registration;
  // The lookups that translate no addresses do not find it.
  registration.pd = pd | kWithIova;
  registration.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
  registration.arena = Arena::kNull;
  registration.length = UINT64_MAX;
  return registration;
}

}  // namespace rdmacomm::softdev
