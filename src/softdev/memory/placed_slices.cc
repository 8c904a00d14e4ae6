#include "softdev/memory/placed_slices.h"

#include "softdev/memory/null_memory.h"
#include "softdev/memory/page_faults.h"

namespace rdmacomm::softdev {

bool PlacedSlices::place(std::span<const MrEntry> table, std::uint32_t pd, std::span<const ibv_sge> slices,
                         std::uint32_t access) noexcept {
  count_ = 0;
  for (const ibv_sge& slice : slices) {
    ibv_sge& placed = slices_[count_++] = slice;
    if (slice.length == 0) continue;
    const MrEntry* const entry = find_local_range(table, slice.lkey, pd, slice.addr, slice.length, access);
    if (entry == nullptr) return false;
    placed.addr = memory_of(*entry, slice.addr, (access & IBV_ACCESS_LOCAL_WRITE) != 0);
    if (placed.addr == 0) return false;
    if ((entry->access & IBV_ACCESS_ON_DEMAND) == 0) continue;
    const auto* const memory = reinterpret_cast<const std::byte*>(placed.addr);
    if (load_pages(memory, slice.length, (access & IBV_ACCESS_LOCAL_WRITE) != 0) != 0) return false;
  }
  return true;
}

}  // namespace rdmacomm::softdev
