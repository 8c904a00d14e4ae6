#include "softdev/memory/posted_receive.h"

#include <algorithm>
#include <array>

#include "softdev/memory/placed_slices.h"

namespace rdmacomm::softdev {

bool copy_eager_placed(const InSlot& slot, std::uint32_t bytes, std::span<const ibv_sge> slices,
                       const ReceiveMemory& memory) noexcept {
  // Only the part that the message fills must be registered.
  std::array<ibv_sge, kMaxSge> filled;
  std::size_t count = 0;
  for (std::uint32_t left = bytes; left != 0 && count < slices.size(); ++count) {
    filled[count] = slices[count];
    filled[count].length = std::min(left, slices[count].length);
    left -= filled[count].length;
  }
  PlacedSlices placed;
  return placed.place(memory.table, memory.pd, std::span(filled).first(count), IBV_ACCESS_LOCAL_WRITE) &&
         scatter_eager(slot, bytes, placed.get());
}

}  // namespace rdmacomm::softdev
