// locked_memory.h - counts registered memory towards RLIMIT_MEMLOCK, as the kernel counts the memory that NICs use.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

namespace rdmacomm::softdev {

/// Pages that are counted as locked. A page in two registrations counts twice. All contexts of a process share one
/// count. A child of fork() begins at 0. soft0 does not really lock pages. Source: ib_umem_get() in Linux's
/// drivers/infiniband/core/umem.c.
/// Threads: any, each object one at a time.
class LockedMemory {
 public:
  LockedMemory() = default;
  LockedMemory(LockedMemory&& other) noexcept { swap(other); }
  LockedMemory& operator=(LockedMemory&& other) noexcept {
    swap(other);
    return *this;
  }
  ~LockedMemory();

  /// Counts the pages of `length` bytes from `address` on; `locked` must be empty.
  /// Returns  0, or ENOMEM: the process would exceed its soft limit, and lacks CAP_IPC_LOCK.
  /// Cost     two system calls
  [[nodiscard]] static int add(std::uint64_t address, std::size_t length, LockedMemory& locked);

 private:
  void swap(LockedMemory& other) noexcept;

  std::int64_t pages_ = 0;
  pid_t process_ = 0;  // that has counted them
};

}  // namespace rdmacomm::softdev
