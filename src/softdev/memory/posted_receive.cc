#include "softdev/memory/posted_receive.h"

#include "softdev/memory/placed_slices.h"

namespace rdmacomm::softdev {

bool copy_eager_placed(const InSlot& slot, std::uint32_t bytes, std::span<const ibv_sge> slices,
                       const ReceiveMemory& memory) noexcept {
  if (bytes == 0) return true;  // it uses no memory
  PlacedSlices placed;
  return placed.place(memory.table, memory.pd, slices, IBV_ACCESS_LOCAL_WRITE) &&
         scatter_eager(slot, bytes, placed.get());
}

}  // namespace rdmacomm::softdev
