#include "softdev/memory/shared_memory.h"

#include <utility>

namespace rdmacomm::softdev {

void* SharedMemory::allocate(std::size_t length, bool huge_pages, std::uint64_t made_at) {
  SharedBlock block = (huge_pages ? huge_pages_ : pages_).allocate(length);
  if (block.mapping.empty()) return nullptr;
  void* const address = block.mapping.data();
  const std::scoped_lock lock(mutex_);
  allocations_.emplace(reinterpret_cast<std::uintptr_t>(address),
                       Allocation{std::move(block), huge_pages ? Arena::kHugePages : Arena::kPages, made_at});
  return address;
}

bool SharedMemory::take(const void* address, Allocation& taken) {
  const std::scoped_lock lock(mutex_);
  const auto found = allocations_.find(reinterpret_cast<std::uintptr_t>(address));
  if (found == allocations_.end()) return false;
  taken = std::move(found->second);
  allocations_.erase(found);
  return true;
}

Arena SharedMemory::locate(const void* address, std::size_t length, std::uint64_t& offset) {
  const std::scoped_lock lock(mutex_);
  const auto start = reinterpret_cast<std::uintptr_t>(address);
  auto found = allocations_.upper_bound(start);
  if (found == allocations_.begin()) return Arena::kNone;
  --found;
  const std::uintptr_t inside = start - found->first;
  const std::size_t size = found->second.block.mapping.size();
  if (inside > size || length > size - inside) return Arena::kNone;
  offset = found->second.block.offset + inside;
  return found->second.arena;
}

int SharedMemory::arena_fd(Arena arena) {
  if (arena == Arena::kPages) return pages_.fd();
  return arena == Arena::kHugePages ? huge_pages_.fd() : -1;
}

}  // namespace rdmacomm::softdev
