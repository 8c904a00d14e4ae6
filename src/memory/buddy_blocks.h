// buddy_blocks.h - which parts of a range are free: blocks of 2^n units, which are split and joined.
// Layer: memory, internal.
#pragma once

#include <cstdint>
#include <vector>

namespace rdmacomm {

/// The free list of units 0..count - 1. It is stored apart from the memory that it describes, because peers may write
/// to that memory.
/// Threads: one at a time.
class BuddyBlocks {
 public:
  static constexpr std::uint32_t kNone = 0xffffffff;

  /// count  number of units: a multiple of 2^top_order
  /// At first all units are free, in blocks of 2^top_order.
  BuddyBlocks(std::uint32_t count, std::uint32_t top_order);

  /// Takes a free block of 2^order units, and returns its first unit; kNone: no such block is free. Cost: at most
  /// top_order steps.
  [[nodiscard]] std::uint32_t take(std::uint32_t order) noexcept;
  /// Frees a block that was taken with this order, and joins it with its free neighbours.
  void give_back(std::uint32_t unit, std::uint32_t order) noexcept;

 private:
  struct Unit {
    std::uint32_t next = kNone;
    std::uint32_t previous = kNone;
    std::uint32_t free_order = kNone;  ///< at the first unit of a free block: its order
  };

  void push(std::uint32_t unit, std::uint32_t order) noexcept;
  void remove(std::uint32_t unit, std::uint32_t order) noexcept;

  const std::uint32_t top_order_;
  std::vector<Unit> units_;
  std::vector<std::uint32_t> heads_;  // the first free block of each order
};

}  // namespace rdmacomm
