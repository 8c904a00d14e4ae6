#include "memory/buddy_blocks.h"

#include "rdmacomm/result.h"

namespace rdmacomm {

BuddyBlocks::BuddyBlocks(std::uint32_t count, std::uint32_t top_order)
    : top_order_(top_order), units_(count), heads_(top_order + 1, kNone) {
  const std::uint32_t step = std::uint32_t{1} << top_order;
  for (std::uint32_t unit = count; unit >= step; unit -= step) push(unit - step, top_order);  // lowest unit on top
}

void BuddyBlocks::push(std::uint32_t unit, std::uint32_t order) noexcept {
  const std::uint32_t head = heads_[order];
  units_[unit] = {.next = head, .previous = kNone, .free_order = order};
  if (head != kNone) units_[head].previous = unit;
  heads_[order] = unit;
}

void BuddyBlocks::remove(std::uint32_t unit, std::uint32_t order) noexcept {
  const Unit taken = units_[unit];
  (taken.previous == kNone ? heads_[order] : units_[taken.previous].next) = taken.next;
  if (taken.next != kNone) units_[taken.next].previous = taken.previous;
  units_[unit] = {};
}

std::uint32_t BuddyBlocks::take(std::uint32_t order) noexcept {
  std::uint32_t found = order;
  while (found <= top_order_ && heads_[found] == kNone) ++found;
  if (found > top_order_) return kNone;
  const std::uint32_t unit = heads_[found];
  remove(unit, found);
  while (found > order) {
    --found;
    push(unit + (std::uint32_t{1} << found), found);
  }
  return unit;
}

void BuddyBlocks::give_back(std::uint32_t unit, std::uint32_t order) noexcept {
  if (units_[unit].free_order != kNone) [[unlikely]]
    detail::die_of_misuse("a block was returned to its pool, but it is already free", nullptr);
  for (; order < top_order_; ++order) {
    const std::uint32_t buddy = unit ^ (std::uint32_t{1} << order);
    if (units_[buddy].free_order != order) break;
    remove(buddy, order);
    unit &= ~(std::uint32_t{1} << order);
  }
  push(unit, order);
}

}  // namespace rdmacomm
