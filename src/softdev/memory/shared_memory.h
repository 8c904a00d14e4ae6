// shared_memory.h - memory that a context allocates and peers map.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

#include "softdev/shared/layout.h"
#include "softdev/shared/shared_file.h"

namespace rdmacomm::softdev {

/// The memory from allocate_memory(), which peers map and access at full speed.
/// Threads: any.
class SharedMemory {
 public:
  struct Allocation {
    SharedBlock block;
    Arena arena = Arena::kNone;
    std::uint64_t made_at = 0;  ///< a moment() of Stragglers
  };
  [[nodiscard]] void* allocate(std::size_t length, bool huge_pages, std::uint64_t made_at);
  /// Removes the allocation at `address`; the caller frees it in its file. Returns false: no such allocation.
  [[nodiscard]] bool take(const void* address, Allocation& taken);
  [[nodiscard]] SharedFile& file(Arena arena) noexcept { return arena == Arena::kHugePages ? huge_pages_ : pages_; }
  /// The arena that contains all of [address, address + length), and the offset there. kNone: other memory of the
  /// application.
  [[nodiscard]] Arena locate(const void* address, std::size_t length, std::uint64_t& offset);
  [[nodiscard]] int arena_fd(Arena arena);

 private:
  SharedFile pages_{"soft0-memory", kPage, 0};
  SharedFile huge_pages_{"soft0-huge-memory", std::size_t{2} << 20, 4 /* MFD_HUGETLB */};
  std::mutex mutex_;
  std::map<std::uintptr_t, Allocation> allocations_;
};

}  // namespace rdmacomm::softdev
