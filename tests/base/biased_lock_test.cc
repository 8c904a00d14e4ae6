// BiasedLock: only one thread holds it at a time, whether owner or not.
#include "base/biased_lock.h"

#include <gtest/gtest.h>

#include <mutex>
#include <optional>
#include <thread>
#include <vector>

namespace rdmacomm {
namespace {

class BiasedLockTest : public ::testing::TestWithParam<bool> {
 protected:
  static bool by_membarrier() { return GetParam() && register_for_membarrier(); }

  /// Increments would be lost if two threads held the lock at the same time.
  void count_as_owner(int times) {
    for (int i = 0; i < times; ++i) {
      const BiasedGuard guard(lock_);
      count_ = count_ + 1;
    }
  }
  void count_as_another(int times) {
    for (int i = 0; i < times; ++i) {
      const std::scoped_lock guard(lock_);
      count_ = count_ + 1;
    }
  }
  void count_by_trying(int times) {
    for (int done = 0; done < times;) {
      const BiasedTry guard(lock_);
      if (!guard) continue;
      count_ = count_ + 1;
      ++done;
    }
  }

  BiasedLock lock_{by_membarrier()};
  volatile int count_ = 0;
};

TEST_P(BiasedLockTest, OneOwnerAndOthers) {
  constexpr int kVisits = 3'000;
  std::thread another([&] { count_as_another(kVisits); });
  std::thread trying([&] { count_by_trying(kVisits); });
  count_as_owner(300'000);
  count_by_trying(kVisits);
  another.join();
  trying.join();
  EXPECT_EQ(count_, 300'000 + 3 * kVisits);
}

TEST_P(BiasedLockTest, ManyOwners) {
  constexpr int kEach = 30'000;
  std::vector<std::thread> owners;
  for (int i = 0; i < 3; ++i) owners.emplace_back([&] { count_as_owner(kEach); });
  std::thread another([&] { count_as_another(1'000); });
  for (std::thread& owner : owners) owner.join();
  another.join();
  EXPECT_EQ(count_, 3 * kEach + 1'000);
}

TEST_P(BiasedLockTest, TryingFailsWhileTheOwnerIsInside) {
  count_as_owner(1);
  std::optional<BiasedGuard> guard(std::in_place, lock_);
  bool taken = true;
  std::thread([&] { taken = static_cast<bool>(BiasedTry(lock_)); }).join();
  EXPECT_FALSE(taken);
  guard.reset();
  EXPECT_TRUE(BiasedTry(lock_));
  EXPECT_TRUE(lock_.try_lock());
  lock_.unlock();
  count_as_owner(1);
  EXPECT_EQ(count_, 2);
}

INSTANTIATE_TEST_SUITE_P(By, BiasedLockTest, ::testing::Bool(),
                         [](const auto& param) { return param.param ? "Membarrier" : "LockedInstructions"; });

}  // namespace
}  // namespace rdmacomm
