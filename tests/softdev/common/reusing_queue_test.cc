#include "softdev/common/reusing_queue.h"

#include <gtest/gtest.h>

#include <deque>
#include <random>
#include <string>
#include <vector>

namespace rdmacomm::softdev {
namespace {

std::string content(const ReusingQueue<std::string>& queue) {
  std::string all;
  for (std::size_t i = 0; i < queue.size(); ++i) all += queue[i];
  return all;
}

void put(ReusingQueue<std::string>& queue, const char* text) {
  queue.push_back() = text;
}

TEST(ReusingQueue, KeepsTheOrderWhileItGrowsAndWrapsAround) {
  ReusingQueue<std::string> queue;
  EXPECT_TRUE(queue.empty());
  for (const char* text : {"a", "b", "c"}) put(queue, text);
  queue.pop_front();
  for (const char* text : {"d", "e", "f"}) put(queue, text);  // wraps around, then one more
  EXPECT_EQ(content(queue), "bcdef");
  EXPECT_EQ(queue.front(), "b");
  EXPECT_EQ(queue.back(), "f");
  queue.pop_back();
  EXPECT_EQ(content(queue), "bcde");
  queue.clear();
  EXPECT_TRUE(queue.empty());
  put(queue, "g");
  EXPECT_EQ(content(queue), "g");
}

TEST(ReusingQueue, DoesNotMoveItsElements) {
  ReusingQueue<int> queue;
  const int* const first = &(queue.push_back() = 1);
  for (int i = 2; i < 200; ++i) queue.push_back() = i;
  EXPECT_EQ(&queue.front(), first);
  EXPECT_EQ(*first, 1);
}

TEST(ReusingQueue, ReusesTheMemoryOfAPlace) {
  ReusingQueue<std::vector<int>> queue;
  queue.push_back().assign(1000, 1);
  const int* const memory = queue.front().data();
  queue.pop_front();
  EXPECT_EQ(queue.push_back().data(), memory);
}

TEST(ReusingQueue, FreesMemoryAfterManyHaveLeft) {
  ReusingQueue<std::shared_ptr<int>> queue;
  const auto held = std::make_shared<int>(0);
  for (int i = 0; i < 1000; ++i) queue.push_back() = held;
  while (!queue.empty()) queue.pop_front();
  EXPECT_EQ(held.use_count(), 1);
}

TEST(ReusingQueue, BehavesLikeADeque) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  ReusingQueue<unsigned> queue;
  std::deque<unsigned> model;
  for (unsigned i = 0; i < 20'000; ++i) {
    // Alternates between phases in which the queue mostly grows and phases in which it mostly shrinks.
    const bool comes = random() % 100 < (i / 500 % 2 == 0 ? 60 : 40);
    if (comes || model.empty()) {
      queue.push_back() = i;
      model.push_back(i);
    } else if (random() % 4 == 0) {
      queue.pop_back();
      model.pop_back();
    } else {
      queue.pop_front();
      model.pop_front();
    }
    ASSERT_EQ(queue.size(), model.size());
    for (std::size_t k = 0; k < model.size(); k += 1 + model.size() / 8) ASSERT_EQ(queue[k], model[k]);
  }
}

}  // namespace
}  // namespace rdmacomm::softdev
