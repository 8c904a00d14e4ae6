// Selects the connection to drop if too many connections have not proven their identity.
#include "softdev/context/unproven.h"

#include <gtest/gtest.h>

namespace rdmacomm::softdev::test {
namespace {

constexpr Unproven::Clock::time_point kNow{std::chrono::hours(1)};

TEST(Unproven, TheOldestOfTheProcessWithTheMostIsReplaced) {
  Unproven connections(4);
  connections.add(1, 10, kNow);
  connections.add(2, 20, kNow);
  connections.add(3, 20, kNow);
  EXPECT_FALSE(connections.is_full());
  connections.add(4, 30, kNow);
  EXPECT_TRUE(connections.is_full());
  EXPECT_EQ(connections.gives_way(kNow), 2U);
}

TEST(Unproven, IfEachProcessHasOneTheOldestIsReplacedAfterItsTime) {
  Unproven connections(2);
  connections.add(1, 10, kNow);
  connections.add(2, 20, kNow + std::chrono::milliseconds(1));
  EXPECT_EQ(connections.gives_way(kNow + Unproven::kTimeToProve - std::chrono::nanoseconds(1)), std::nullopt);
  EXPECT_EQ(connections.gives_way(kNow + Unproven::kTimeToProve), 1U);
}

TEST(Unproven, AProvenConnectionTakesNoRoom) {
  Unproven connections(1);
  connections.add(1, 10, kNow);
  connections.remove(1);
  EXPECT_FALSE(connections.is_full());
  EXPECT_EQ(connections.gives_way(kNow), std::nullopt);
}

}  // namespace
}  // namespace rdmacomm::softdev::test
