#include "memory/buddy_blocks.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace rdmacomm {
namespace {

constexpr std::uint32_t kNone = BuddyBlocks::kNone;

TEST(BuddyBlocks, LendsWholeBlocksFromTheFirstOn) {
  BuddyBlocks blocks(8, 2);
  EXPECT_EQ(blocks.take(2), 0U);
  EXPECT_EQ(blocks.take(2), 4U);
  EXPECT_EQ(blocks.take(2), kNone);
  EXPECT_EQ(blocks.take(0), kNone);
}

TEST(BuddyBlocks, SplitsAndJoinsBlocks) {
  BuddyBlocks blocks(4, 2);
  EXPECT_EQ(blocks.take(0), 0U);
  EXPECT_EQ(blocks.take(2), kNone);
  EXPECT_EQ(blocks.take(1), 2U);
  EXPECT_EQ(blocks.take(0), 1U);
  EXPECT_EQ(blocks.take(0), kNone);
  blocks.give_back(0, 0);
  blocks.give_back(2, 1);
  EXPECT_EQ(blocks.take(2), kNone);  // unit 1 is still taken
  blocks.give_back(1, 0);
  EXPECT_EQ(blocks.take(2), 0U);
}

TEST(BuddyBlocks, ReturningABlockTwiceIsABug) {
  BuddyBlocks blocks(2, 1);
  const std::uint32_t unit = blocks.take(0);
  blocks.give_back(unit, 0);
  EXPECT_DEATH(blocks.give_back(unit, 0), "already free");
}

/// Compares with a map of the owners of all units. At the end all blocks are merged again.
TEST(BuddyBlocks, NeverLendsAUnitTwice) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  constexpr std::uint32_t kUnits = 192;
  constexpr std::uint32_t kTop = 5;
  BuddyBlocks blocks(kUnits, kTop);
  struct Held {
    std::uint32_t unit;
    std::uint32_t order;
  };
  std::vector<Held> held;
  std::vector<bool> used(kUnits, false);
  const auto mark = [&](Held block, bool to) {
    for (std::uint32_t i = 0; i < 1U << block.order; ++i) {
      ASSERT_EQ(used[block.unit + i], !to);
      used[block.unit + i] = to;
    }
  };
  for (int step = 0; step < 20'000; ++step) {
    const Held block{0, static_cast<std::uint32_t>(random() % (kTop + 1))};
    const std::uint32_t unit = random() % 2 == 0 ? blocks.take(block.order) : kNone;
    if (unit != kNone) {
      ASSERT_EQ(unit % (1U << block.order), 0U);
      held.push_back({unit, block.order});
      mark(held.back(), true);
    } else if (!held.empty()) {
      std::swap(held[random() % held.size()], held.back());
      mark(held.back(), false);
      blocks.give_back(held.back().unit, held.back().order);
      held.pop_back();
    }
    if (HasFatalFailure()) return;
  }
  for (const Held& block : held) blocks.give_back(block.unit, block.order);
  for (std::uint32_t i = 0; i < kUnits >> kTop; ++i) EXPECT_NE(blocks.take(kTop), kNone);
  EXPECT_EQ(blocks.take(0), kNone);
}

}  // namespace
}  // namespace rdmacomm
