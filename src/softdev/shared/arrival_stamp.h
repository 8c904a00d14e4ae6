// arrival_stamp.h - stamps that show in which order messages arrived at one completion queue.
#pragma once

#ifdef __x86_64__
#include <x86intrin.h>
#endif

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "softdev/shared/layout.h"

namespace rdmacomm::softdev {

/// The way for this host's messages. By the clock of the CPU if the kernel trusts it to be the same on all CPUs. Else by
/// a counter: an atomic increment takes longer, because it first waits for all earlier stores.
[[nodiscard]] Stamping best_stamping() noexcept;

/// Draws the stamp of a message for `cq` that is about to be published, or of a failure. If one message was published
/// before another one was stamped, its stamp is less.
[[nodiscard]] inline std::uint64_t draw_stamp(CqShared& cq, Stamping how) noexcept {
#ifdef __x86_64__
  if (how == Stamping::kByClock) {
    _mm_lfence();  // after all earlier loads, for example of another message that is answered now
    return __rdtsc();
  }
#endif
  (void)how;
  return cq.stamps.fetch_add(1, std::memory_order_acq_rel) + 1;
}

/// Later than the stamp of each message.
inline constexpr std::uint64_t kNoStamp = UINT64_MAX;

/// The stamp of a message; 0 if it has none: it arrived before all that have one. A peer may have written any number.
[[nodiscard]] inline std::uint64_t stamp_of(InSlot& slot, SlotHead head) noexcept {
  if ((head.contents & SlotContents::kStamped) == 0) return 0;
  return std::min(std::atomic_ref(slot.stamp()).load(std::memory_order_relaxed), kNoStamp - 1);
}

/// The inbound slot in which the next message of a queue pair arrives.
struct NextMessage {
  InSlot* slot = nullptr;
  std::uint32_t sequence = 0;

  [[nodiscard]] bool has_arrived() const noexcept {
    return slot->head.load(std::memory_order_acquire).sequence == sequence;
  }
  /// The stamp of the message; kNoStamp: it has not arrived.
  [[nodiscard]] std::uint64_t stamp() const noexcept {
    const SlotHead head = slot->head.load(std::memory_order_acquire);
    return head.sequence == sequence ? stamp_of(*slot, head) : kNoStamp;
  }
};

}  // namespace rdmacomm::softdev
