// shared_memory.h - memory that a context hands out, and peers map.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

#include "softdev/shared/layout.h"
#include "softdev/shared/shared_file.h"

namespace rdmacomm::softdev {

/// The memory handed out by allocate_memory(): mapped by peers at full speed.
/// Threads: any.
class SharedMemory {
 public:
  struct Allocation {
    SharedBlock block;
    Arena arena = Arena::kNone;
    std::uint64_t made_at = 0;  ///< a moment of the Stragglers'
  };
  [[nodiscard]] void* allocate(std::size_t length, bool huge_pages, std::uint64_t made_at);
  /// Takes out what was allocated at `address`, to be given back to its file. false: nothing was.
  [[nodiscard]] bool take(const void* address, Allocation& taken);
  [[nodiscard]] SharedFile& file(Arena arena) noexcept { return arena == Arena::kHugePages ? huge_pages_ : pages_; }
  /// Which arena [address, address + length) lies in as a whole, and where; kNone: memory of the application's own.
  [[nodiscard]] Arena locate(const void* address, std::size_t length, std::uint64_t& offset);
  [[nodiscard]] int arena_fd(Arena arena);

 private:
  SharedFile pages_{"soft0-memory", kPage, 0};
  SharedFile huge_pages_{"soft0-huge-memory", std::size_t{2} << 20, 4 /* MFD_HUGETLB */};
  std::mutex mutex_;
  std::map<std::uintptr_t, Allocation> allocations_;
};

}  // namespace rdmacomm::softdev
