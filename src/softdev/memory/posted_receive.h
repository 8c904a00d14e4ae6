// posted_receive.h - a posted receive, as its owner and its initiators see it.
#pragma once

#include <infiniband/verbs.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/hot_inline.h"
#include "softdev/common/copy.h"
#include "softdev/memory/mr_table.h"
#include "softdev/shared/layout.h"

namespace rdmacomm::softdev {

/// The owner's part of posted receives, each at its own place. One place may be read while another one is written.
class ReceiveTable {
 public:
  ReceiveTable(std::uint32_t places, std::uint32_t max_sge)
      : max_sge_(max_sge), records_(places), slices_(std::size_t{places} * max_sge) {}

  /// Copies `wr` to `place`. Returns the caller's slices, at most max_sge.
  std::span<const ibv_sge> put(std::uint32_t place, const ibv_recv_wr& wr) noexcept {
    const std::span<const ibv_sge> given(wr.sg_list, static_cast<std::size_t>(wr.num_sge));
    records_[place] = {wr.wr_id, static_cast<std::uint32_t>(given.size()), 0};
    std::ranges::copy(given, slices_.data() + std::size_t{place} * max_sge_);
    return given;
  }
  /// bytes  FilledEntry::room
  void set_room(std::uint32_t place, std::uint32_t bytes) noexcept { records_[place].room = bytes; }
  /// The value of set_room(). No message that was handed over is longer.
  [[nodiscard]] std::uint32_t room(std::uint32_t place) const noexcept { return records_[place].room; }
  [[nodiscard]] std::uint64_t wr_id(std::uint32_t place) const noexcept { return records_[place].wr_id; }
  [[nodiscard]] std::span<const ibv_sge> slices(std::uint32_t place) const noexcept {
    return {slices_.data() + std::size_t{place} * max_sge_, records_[place].count};
  }
  [[nodiscard]] bool uses(std::uint32_t place, std::uint32_t key) const noexcept {
    return std::ranges::any_of(slices(place), [key](const ibv_sge& slice) { return slice.lkey == key; });
  }

 private:
  struct Record {
    std::uint64_t wr_id;
    std::uint32_t count;
    std::uint32_t room;
  };
  const std::uint32_t max_sge_;
  std::vector<Record> records_;
  std::vector<ibv_sge> slices_;
};

/// The registrations that posted receives may use.
struct ReceiveMemory {
  std::span<const MrEntry> table;
  std::uint32_t pd;

  [[nodiscard]] bool is_writable(std::span<const ibv_sge> slices) const noexcept {
    return all_found(slices, find_local_range);
  }
  /// The same, and the slices need no translation (iova).
  [[nodiscard]] bool is_writable_in_place(std::span<const ibv_sge> slices) const noexcept {
    return all_found(slices, find_range);
  }

 private:
  template <typename Find>
  [[nodiscard]] bool all_found(std::span<const ibv_sge> slices, Find find) const noexcept {
    return std::ranges::all_of(slices, [this, find](const ibv_sge& slice) {
      return slice.length == 0 ||
             find(table, slice.lkey, pd, slice.addr, slice.length, IBV_ACCESS_LOCAL_WRITE) != nullptr;
    });
  }
};

struct FilledEntry {
  std::uint32_t room;   ///< the receive's size
  std::uint32_t floor;  ///< maximum size of a message that may be handed over without a look at the entry
};

/// Fills the part of a receive that initiators see. As on hardware, only the used part of a receive must be registered,
/// so an invalid lkey is the error of the message that uses it.
inline FilledEntry fill_entry(RecvEntry& entry, std::span<const ibv_sge> slices, const ReceiveMemory& memory) noexcept {
  entry.count = static_cast<std::uint32_t>(slices.size());
  const bool is_registered = memory.is_writable(slices);
  entry.memory = is_registered ? RecvEntry::kRegistered : RecvEntry::kUnchecked;
  std::uint64_t total = 0;
  for (const ibv_sge& slice : slices) total += slice.length;
  entry.total = total;
  std::ranges::copy(slices, entry.scatter());
  const auto room = static_cast<std::uint32_t>(std::min<std::uint64_t>(total, UINT32_MAX));
  return {room, is_registered ? room : 0};
}

/// Lowers the floor to `bytes`: the maximum size of a message that may be handed over to a receive without a look at
/// its entry. Only the owner calls it, for a receive that was posted or can take less from now on.
inline void lower_floor(std::atomic<std::uint32_t>& floor, std::uint32_t bytes) noexcept {
  if (bytes < floor.load(std::memory_order_relaxed)) floor.store(bytes, std::memory_order_relaxed);
}

/// Marks a posted receive whose memory was deregistered: initiators must look at its entry before they hand over a
/// message. Only the owner calls it.
inline void refuse(RecvEntry& entry, std::atomic<std::uint32_t>& floor) noexcept {
  std::atomic_ref(entry.memory).store(RecvEntry::kUnchecked, std::memory_order_relaxed);
  lower_floor(floor, 0);
}

/// Copies a message of `bytes` from its slot to the memory of its receive. Returns false: the message is longer.
RDMACOMM_HOT_INLINE bool scatter_eager(const InSlot& slot, std::uint32_t bytes,
                                       std::span<const ibv_sge> slices) noexcept {
  const std::byte* from = slot.payload;
  std::uint32_t left = bytes;
  for (const ibv_sge& slice : slices) {
    if (left == 0) break;
    const std::uint32_t here = std::min(left, slice.length);
    copy_small(reinterpret_cast<std::byte*>(slice.addr), from, here);
    from += here;
    left -= here;
  }
  return left == 0;
}

/// The same if the receive may use registrations with other addresses (iova). Returns false: its memory is not
/// registered, or not any more.
[[nodiscard]] bool copy_eager_placed(const InSlot& slot, std::uint32_t bytes, std::span<const ibv_sge> slices,
                                     const ReceiveMemory& memory) noexcept;

/// The same for any receive. Also returns false if `bytes` is more than a slot holds.
RDMACOMM_HOT_INLINE bool copy_eager(const InSlot& slot, std::uint32_t bytes, std::span<const ibv_sge> slices,
                                    const ReceiveMemory& memory) noexcept {
  if (bytes > InSlot::kEagerBytes) [[unlikely]]
    return false;
  if (memory.is_writable_in_place(slices)) [[likely]]
    return scatter_eager(slot, bytes, slices);
  return copy_eager_placed(slot, bytes, slices, memory);
}

}  // namespace rdmacomm::softdev
