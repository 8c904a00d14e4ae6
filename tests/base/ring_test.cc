#include "base/ring.h"

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <random>

namespace rdmacomm {
namespace {

TEST(Ring, HasAtLeastTheRequestedCapacity) {
  EXPECT_EQ(Ring<int>(1).capacity(), 1U);
  EXPECT_EQ(Ring<int>(5).capacity(), 8U);
  EXPECT_TRUE(Ring<int>(5).empty());
}

TEST(Ring, WrapsAroundInOrder) {
  std::mt19937 random(7);
  Ring<int> ring(5);
  std::deque<int> model;
  for (int step = 0; step < 10'000; ++step) {
    if (model.size() < ring.capacity() && (model.empty() || random() % 2 == 0)) {
      ring.push(step);
      model.push_back(step);
    } else {
      ASSERT_EQ(ring.front(), model.front());
      ring.pop();
      model.pop_front();
    }
    ASSERT_EQ(ring.size(), model.size());
    ASSERT_EQ(ring.empty(), model.empty());
  }
}

TEST(Ring, TakesMoveOnlyTypes) {
  Ring<std::unique_ptr<int>> ring(2);
  ring.push(std::make_unique<int>(3));
  const std::unique_ptr<int> taken = std::move(ring.front());
  ring.pop();
  EXPECT_EQ(*taken, 3);
}

}  // namespace
}  // namespace rdmacomm
