// Stragglers alone: the test says which targets are busy.
#include <gtest/gtest.h>

#include <memory>

#include "softdev/memory/stragglers.h"

namespace rdmacomm::softdev::test {
namespace {

class FakeTarget final : public InitiatorTarget {
 public:
  bool busy = true;
  bool left_behind = false;
  int notified = 0;
  int settled = 0;
  const ibv_srq* forgotten = nullptr;

  [[nodiscard]] bool is_busy() const noexcept override { return busy; }
  void set_left_behind(bool is) noexcept override { left_behind = is; }
  void notify_receiver() noexcept override { ++notified; }
  void settle_after_destruction() noexcept override { ++settled; }
  void forget_shared_receives(const ibv_srq& queue) noexcept override { forgotten = &queue; }
  [[nodiscard]] bool wait_until_seen_idle(Clock::time_point /*deadline*/) noexcept override { return !busy; }
};

struct StragglersAlone : ::testing::Test {
  Stragglers stragglers;
  std::shared_ptr<FakeTarget> target = std::make_shared<FakeTarget>();
  int given_back = 0;

  void defer(std::uint64_t made_at) {
    stragglers.defer(made_at, [this] { ++given_back; });
  }
};

TEST_F(StragglersAlone, WithoutAnyMemoryIsReturnedAtOnce) {
  EXPECT_FALSE(stragglers.watched_for());
  defer(stragglers.moment());
  EXPECT_EQ(given_back, 1);
}

TEST_F(StragglersAlone, MemoryThatOneMayUseIsKeptUntilItIsDone) {
  const std::uint64_t made_at = stragglers.moment();
  stragglers.add(target);
  EXPECT_TRUE(stragglers.any() && target->left_behind);
  defer(made_at);
  stragglers.sweep();
  EXPECT_EQ(given_back, 0);
  target->busy = false;
  stragglers.sweep();
  EXPECT_EQ(given_back, 1);
  EXPECT_EQ(target->settled, 1);
  EXPECT_FALSE(stragglers.watched_for() || target->left_behind);
}

TEST_F(StragglersAlone, AddingOneTwiceCountsOnce) {
  stragglers.add(target);
  stragglers.add(target);
  EXPECT_EQ(stragglers.targets().size(), 1U);
}

TEST_F(StragglersAlone, LaterMemoryDoesNotWaitForARetiredOne) {
  const std::uint64_t before = stragglers.moment();
  stragglers.add(target);
  stragglers.retire(*target);
  defer(before);
  EXPECT_EQ(given_back, 0);
  defer(stragglers.moment());
  EXPECT_EQ(given_back, 1);
}

TEST_F(StragglersAlone, MemoryWaitsForEachOfThem) {
  const auto other = std::make_shared<FakeTarget>();
  stragglers.add(target);
  stragglers.add(other);
  defer(stragglers.moment());
  target->busy = false;
  stragglers.sweep();
  EXPECT_EQ(given_back, 0);
  other->busy = false;
  stragglers.sweep();
  EXPECT_EQ(given_back, 1);
}

TEST_F(StragglersAlone, ASuspectThatIsDoneInTimeIsNoStraggler) {
  stragglers.suspect(target);
  EXPECT_TRUE(stragglers.watched_for());
  stragglers.sweep();
  EXPECT_EQ(target->notified, 0) << "it has its time yet";
  target->busy = false;
  stragglers.sweep();
  EXPECT_EQ(target->notified, 1);
  EXPECT_EQ(target->settled, 0);
  EXPECT_FALSE(stragglers.any() || stragglers.watched_for() || target->left_behind);
}

TEST_F(StragglersAlone, AllForgetAQueueThatIsDestroyed) {
  const ibv_srq queue{};
  stragglers.add(target);
  stragglers.forget(queue);
  EXPECT_EQ(target->forgotten, &queue);
}

}  // namespace
}  // namespace rdmacomm::softdev::test
