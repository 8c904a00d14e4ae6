#include "softdev/memory/locked_memory.h"

#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <fstream>
#include <string>
#include <utility>

#include "softdev/shared/layout.h"

namespace rdmacomm::softdev {
namespace {

/// The pages of all contexts of `counted_process`.
std::atomic<std::int64_t> counted_pages{0};
std::atomic<pid_t> counted_process{0};

/// Starts a new count in a child of fork().
void follow_fork(pid_t process) {
  pid_t before = counted_process.load(std::memory_order_relaxed);
  if (before != process && counted_process.compare_exchange_strong(before, process)) counted_pages.store(0);
}

/// True if the kernel would ignore the limit: the capability must be one of the initial user namespace.
bool may_exceed_limit() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3] = {};
  if (syscall(SYS_capget, &header, sets) != 0) return false;
  if ((sets[0].effective & 1U << CAP_IPC_LOCK) == 0) return false;
  std::ifstream map("/proc/self/uid_map");
  std::uint64_t inside = 1;
  std::uint64_t outside = 1;
  std::uint64_t count = 0;
  map >> inside >> outside >> count;
  return inside == 0 && outside == 0 && count == UINT32_MAX;
}

}  // namespace

LockedMemory::~LockedMemory() {
  if (process_ != 0 && process_ == getpid()) counted_pages.fetch_sub(pages_, std::memory_order_relaxed);
}

void LockedMemory::swap(LockedMemory& other) noexcept {
  std::swap(pages_, other.pages_);
  std::swap(process_, other.process_);
}

int LockedMemory::add(std::uint64_t address, std::size_t length, LockedMemory& locked) {
  const pid_t process = getpid();
  follow_fork(process);
  const std::uint64_t first = address / kPage;
  const auto pages = static_cast<std::int64_t>((address + length - 1) / kPage - first + 1);
  const std::int64_t together = counted_pages.fetch_add(pages, std::memory_order_relaxed) + pages;
  locked.pages_ = pages;
  locked.process_ = process;
  rlimit limit{};
  const bool is_limited = getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  if (!is_limited || static_cast<std::uint64_t>(together) <= limit.rlim_cur / kPage || may_exceed_limit()) return 0;
  locked = LockedMemory();
  return ENOMEM;
}

}  // namespace rdmacomm::softdev
