// buddy_blocks.h - which parts of a range are free: blocks of 2^n units, halved and joined.
// Layer: memory, internal.
#pragma once

#include <cstdint>
#include <vector>

namespace rdmacomm {

/// Books of units 0..count - 1, kept beside the memory they are about, which peers may write to.
/// Threads: one at a time.
class BuddyBlocks {
 public:
  static constexpr std::uint32_t kNone = 0xffffffff;

  /// count    units: a multiple of 2^top_order
  /// All is free, in blocks of 2^top_order.
  BuddyBlocks(std::uint32_t count, std::uint32_t top_order);

  /// The first unit of a block of 2^order; kNone: there is none. Cost: at most top_order steps.
  [[nodiscard]] std::uint32_t take(std::uint32_t order) noexcept;
  /// A block that was taken with that order is free again, and joined with its free neighbours.
  void give_back(std::uint32_t unit, std::uint32_t order) noexcept;

 private:
  struct Unit {
    std::uint32_t next = kNone;
    std::uint32_t previous = kNone;
    std::uint32_t free_order = kNone;  ///< where a free block begins: its order
  };

  void push(std::uint32_t unit, std::uint32_t order) noexcept;
  void remove(std::uint32_t unit, std::uint32_t order) noexcept;

  const std::uint32_t top_order_;
  std::vector<Unit> units_;
  std::vector<std::uint32_t> heads_;  // of the lists of free blocks, by order
};

}  // namespace rdmacomm
