// posted_receive.h - what a posted receive is to its owner, and to the initiators that see it.
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

/// The owner's part of posted receives, each in a place of its own. What is in a place may be read while another is
/// written.
class ReceiveTable {
 public:
  ReceiveTable(std::uint32_t places, std::uint32_t max_sge)
      : max_sge_(max_sge), records_(places), slices_(std::size_t{places} * max_sge) {}

  /// Copies what the caller owns. Returns its slices, at most max_sge.
  std::span<const ibv_sge> put(std::uint32_t place, const ibv_recv_wr& wr) noexcept {
    const std::span<const ibv_sge> given(wr.sg_list, static_cast<std::size_t>(wr.num_sge));
    records_[place] = {wr.wr_id, static_cast<std::uint32_t>(given.size()), 0};
    std::ranges::copy(given, slices_.data() + std::size_t{place} * max_sge_);
    return given;
  }
  /// What fill_entry() said of it.
  void set_room(std::uint32_t place, std::uint32_t bytes) noexcept { records_[place].room = bytes; }
  /// No message that it received is longer.
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

/// The registrations that posted receives may lie in.
struct ReceiveMemory {
  std::span<const MrEntry> table;
  std::uint32_t pd;

  [[nodiscard]] bool is_writable(std::span<const ibv_sge> slices) const noexcept {
    return all_found(slices, find_local_range);
  }
  /// The same, and they lie where they say.
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

/// Fills what initiators see of a receive. Returns the bytes up to which a message may be handed over unseen: all of it,
/// or 0 where an lkey is wrong.
inline std::uint32_t fill_entry(RecvEntry& entry, std::span<const ibv_sge> slices,
                                const ReceiveMemory& memory) noexcept {
  entry.count = static_cast<std::uint32_t>(slices.size());
  entry.memory = memory.is_writable(slices) ? RecvEntry::kRegistered : RecvEntry::kUnregistered;
  entry.total = 0;
  for (const ibv_sge& slice : slices) entry.total += slice.length;
  std::ranges::copy(slices, entry.scatter());
  return entry.memory != RecvEntry::kRegistered
             ? 0
             : static_cast<std::uint32_t>(std::min<std::uint64_t>(entry.total, UINT32_MAX));
}

/// A receive was posted that no more than `bytes` may be handed over to unseen, or one can take no more than that any more.
/// By the owner only.
inline void lower_floor(std::atomic<std::uint32_t>& floor, std::uint32_t bytes) noexcept {
  if (bytes < floor.load(std::memory_order_relaxed)) floor.store(bytes, std::memory_order_relaxed);
}

/// A message is not to be handed over to a posted receive unseen, or at all: its memory was given up. By the owner only.
inline void refuse(RecvEntry& entry, std::atomic<std::uint32_t>& floor) noexcept {
  if (entry.memory == RecvEntry::kRegistered) {
    std::atomic_ref(entry.memory).store(RecvEntry::kGivenUp, std::memory_order_relaxed);
  }
  lower_floor(floor, 0);
}

/// Copies a message of `bytes` that was handed over in its slot to where its receive lies. false: it is longer.
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

/// The same, where the receive may be in registrations with addresses of their own. false: it is not, or no more,
/// registered.
[[nodiscard]] bool copy_eager_placed(const InSlot& slot, std::uint32_t bytes, std::span<const ibv_sge> slices,
                                     const ReceiveMemory& memory) noexcept;

/// The same for any receive. false, too: no slot holds that much.
RDMACOMM_HOT_INLINE bool copy_eager(const InSlot& slot, std::uint32_t bytes, std::span<const ibv_sge> slices,
                                    const ReceiveMemory& memory) noexcept {
  if (bytes > InSlot::kEagerBytes) [[unlikely]]
    return false;
  if (memory.is_writable_in_place(slices)) [[likely]]
    return scatter_eager(slot, bytes, slices);
  return copy_eager_placed(slot, bytes, slices, memory);
}

}  // namespace rdmacomm::softdev
