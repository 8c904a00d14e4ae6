#include "channel/completion_waiter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include <thread>
#include <vector>

#include "device/device_core.h"
#include "device/native_queue.h"
#include "support/fake_verbs.h"

namespace rdmacomm {
namespace {

using namespace std::chrono_literals;
using rdmacomm::testing::FakeVerbs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class CompletionWaiterTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto opened = DeviceCore::open_from(FakeVerbs::api(), {});
    ASSERT_TRUE(opened.has_value());
    device_ = std::move(opened).value();
    auto queue = NativeQueue::create(*device_, {.with_channel = true});
    ASSERT_TRUE(queue.has_value());
    queue_ = std::move(queue).value();
  }
  std::unique_ptr<CompletionWaiter> make(PollingMode mode, const WaitOptions& options = {}) {
    auto waiter = CompletionWaiter::create(mode, *queue_, options);
    EXPECT_TRUE(waiter.has_value());
    return std::move(waiter).value();
  }
  /// One step that finds nothing, with the deadline `limit`. Returns the time that it took.
  Deadline::Clock::duration step(CompletionWaiter& waiter, Deadline::Clock::duration limit) {
    const auto start = Deadline::Clock::now();
    const auto nothing = [this] { return ++polls_ < 0; };
    EXPECT_FALSE(waiter.step(nothing, Deadline::after(limit)));
    return Deadline::Clock::now() - start;
  }
  static bool readable(int fd) {
    pollfd waiting{fd, POLLIN, 0};
    return ::poll(&waiting, 1, 0) == 1;
  }
  static bool found() { return true; }
  static bool nothing() { return false; }

  FakeVerbs fake_;
  std::shared_ptr<DeviceCore> device_;
  std::unique_ptr<NativeQueue> queue_;
  int polls_ = 0;
};

// Behaviour that all sleeping waiters share.
class SleepingWaiterTest : public CompletionWaiterTest, public ::testing::WithParamInterface<PollingMode> {
 protected:
  /// An adaptive waiter without spinning is a sleeping waiter.
  std::unique_ptr<CompletionWaiter> make_sleeper() { return make(GetParam(), {.spin = 0us}); }
};
INSTANTIATE_TEST_SUITE_P(Modes, SleepingWaiterTest,
                         ::testing::Values(PollingMode::kCompletionChannel, PollingMode::kEpoll,
                                           PollingMode::kAdaptive),
                         [](const auto& mode) {
                           const bool epoll = mode.param == PollingMode::kEpoll;
                           return mode.param == PollingMode::kAdaptive ? "Adaptive"
                                  : epoll                              ? "Epoll"
                                                                       : "CompletionChannel";
                         });

TEST_F(CompletionWaiterTest, BusyPollingPollsOnceAStepAndNeverSleeps) {
  const auto waiter = make(PollingMode::kBusyPoll);
  for (int i = 0; i < 5000; ++i) step(*waiter, 1h);
  waiter->wake();
  EXPECT_EQ(polls_, 5000);
  EXPECT_EQ(fake_.armed, 0);
  EXPECT_TRUE(waiter->spins());
  EXPECT_EQ(waiter->counts().waits, 1U);
  EXPECT_EQ(waiter->counts().sleeps, 0U);
}

TEST_F(CompletionWaiterTest, BusyPollingWorksWithoutYieldingToo) {
  const auto waiter = make(PollingMode::kBusyPoll, {.yield_every = 0});
  for (int i = 0; i < 5000; ++i) step(*waiter, 1h);
  EXPECT_EQ(polls_, 5000);
}

TEST_F(CompletionWaiterTest, SpinningBeginsWithManyPollsAtATime) {
  const auto polls_of = [&](PollingMode mode, const WaitOptions& options) {
    const auto waiter = make(mode, options);
    std::vector<std::uint32_t> polls;
    for (int i = 0; i < 3; ++i) {
      polls.push_back(waiter->polls_at_a_time());
      EXPECT_FALSE(waiter->step(nothing, Deadline::after({})));
    }
    EXPECT_TRUE(waiter->step(found, Deadline::after({})));
    EXPECT_EQ(waiter->polls_at_a_time(), polls.front());
    return polls;
  };
  EXPECT_THAT(polls_of(PollingMode::kBusyPoll, {}), ElementsAre(64, 1, 1));
  EXPECT_THAT(polls_of(PollingMode::kBusyPoll, {.yield_every = 0}), ElementsAre(64, 1, 1));
  EXPECT_THAT(polls_of(PollingMode::kBusyPoll, {.yield_every = 8}), ElementsAre(7, 1, 1));
  EXPECT_THAT(polls_of(PollingMode::kBusyPoll, {.yield_every = 1}), ElementsAre(1, 1, 1));
  EXPECT_THAT(polls_of(PollingMode::kAdaptive, {}), ElementsAre(64, 1, 1));
  EXPECT_THAT(polls_of(PollingMode::kAdaptive, {.spin = 0us}), ElementsAre(1, 1, 1));
  EXPECT_THAT(polls_of(PollingMode::kCompletionChannel, {}), ElementsAre(1, 1, 1));
}

TEST_F(CompletionWaiterTest, AWaitBeginsWhenAPollFindsNothing) {
  const auto waiter = make(PollingMode::kBusyPoll);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(waiter->step(found, Deadline::never()));
    EXPECT_TRUE(waiter->step(found, Deadline::never()));
    for (int k = 0; k < 10; ++k) EXPECT_FALSE(waiter->step(nothing, Deadline::never()));
  }
  EXPECT_EQ(waiter->counts().waits, 3U);
  EXPECT_EQ(waiter->counts().spun_share(), 1.0);
}

TEST_F(CompletionWaiterTest, ComputesTheShareOfWaitsThatEndedWhileSpinning) {
  EXPECT_EQ((WaitCounts{}.spun_share()), 1.0);
  EXPECT_EQ((WaitCounts{.waits = 4, .slept = 1, .sleeps = 9}.spun_share()), 0.75);  // with spurious wake-ups
  EXPECT_EQ((WaitCounts{.waits = 4, .slept = 4, .sleeps = 4}.spun_share()), 0.0);
}

TEST_F(CompletionWaiterTest, SeveralSleepsInOneWaitCountAsOneWait) {
  const auto waiter = make(PollingMode::kCompletionChannel);
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(waiter->step(nothing, Deadline::after(0us)));
  EXPECT_TRUE(waiter->step(found, Deadline::never()));
  EXPECT_EQ(waiter->counts().waits, 1U);
  EXPECT_EQ(waiter->counts().slept, 1U);
  EXPECT_EQ(waiter->counts().sleeps, 5U);
  EXPECT_FALSE(waiter->step(nothing, Deadline::after(0us)));
  EXPECT_EQ(waiter->counts().waits, 2U);
  EXPECT_EQ(waiter->counts().slept, 2U);
}

TEST_F(CompletionWaiterTest, SpinningForTooLongIsRefused) {
  for (const auto spin : {-1us, 1'000'001us}) {
    const auto waiter = CompletionWaiter::create(PollingMode::kAdaptive, *queue_, {.spin = spin});
    EXPECT_EQ(waiter.code(), Errc::kInvalidArgument);
    EXPECT_THAT(waiter.error().context, HasSubstr("waiting.spin is " + std::to_string(spin.count()) + " us"));
  }
}

TEST_P(SleepingWaiterTest, SleepingNeedsAChannel) {
  auto queue = NativeQueue::create(*device_, {});
  ASSERT_TRUE(queue.has_value());
  EXPECT_EQ(CompletionWaiter::create(GetParam(), **queue).code(), Errc::kNotSupported);
  EXPECT_TRUE(CompletionWaiter::create(PollingMode::kBusyPoll, **queue).has_value());
}

TEST_P(SleepingWaiterTest, ArmsAndPollsAgainBeforeItSleeps) {
  const auto waiter = make_sleeper();
  bool armed_before_second_poll = false;
  const auto poll = [&] { return ++polls_ == 2 && (armed_before_second_poll = fake_.armed == 1); };
  EXPECT_TRUE(waiter->step(poll, Deadline::after(1s)));
  EXPECT_TRUE(armed_before_second_poll);
  EXPECT_EQ(waiter->counts().sleeps, 0U);
}

TEST_P(SleepingWaiterTest, IsArmedOnceForEachEvent) {
  const auto waiter = make_sleeper();
  for (int i = 0; i < 5; ++i) step(*waiter, 0s);
  EXPECT_EQ(fake_.armed, 1);
  fake_.raise_event(queue_->get());
  for (int i = 0; i < 5; ++i) step(*waiter, 0s);
  EXPECT_EQ(fake_.armed, 2);
}

TEST_P(SleepingWaiterTest, SleepsUntilTheDeadlineAndMeasuresIt) {
  const auto waiter = make_sleeper();
  EXPECT_GE(step(*waiter, 20ms), 20ms);
  EXPECT_FALSE(waiter->spins());
  EXPECT_EQ(waiter->counts().waits, 1U);
  EXPECT_EQ(waiter->counts().sleeps, 1U);
  EXPECT_GE(waiter->counts().asleep, 20ms);
}

TEST_P(SleepingWaiterTest, AnEventEndsTheSleepAndIsConsumed) {
  const auto waiter = make_sleeper();
  fake_.raise_event(queue_->get());
  EXPECT_LT(step(*waiter, 10s), 5s);
  EXPECT_FALSE(readable(queue_->fd()));
}

TEST_P(SleepingWaiterTest, WakeEndsTheSleepOfAnotherThread) {
  const auto waiter = make_sleeper();
  std::thread waker([&] { waiter->wake(); });
  EXPECT_LT(step(*waiter, 10s), 5s);
  waker.join();
}

TEST_P(SleepingWaiterTest, AWakeBeforeTheSleepIsNotLostAndCountsOnce) {
  const auto waiter = make_sleeper();
  waiter->wake();
  waiter->wake();
  EXPECT_LT(step(*waiter, 10s), 5s);
  EXPECT_GE(step(*waiter, 20ms), 20ms);
}

TEST_P(SleepingWaiterTest, AQueueThatCannotBeArmedIsPolledInstead) {
  const auto waiter = make_sleeper();
  for (int i = 0; i < 3; ++i) {
    fake_.fail("req_notify_cq", EIO);
    EXPECT_LT(step(*waiter, 10s), 5s);
  }
  EXPECT_GE(step(*waiter, 20ms), 20ms);
}

// Adaptive ------------------------------------------------------------------------------------------------------------

TEST_F(CompletionWaiterTest, AdaptiveSpinsBeforeItSleeps) {
  const auto waiter = make(PollingMode::kAdaptive, {.spin = 20ms});
  const auto start = Deadline::Clock::now();
  while (waiter->counts().sleeps == 0) step(*waiter, 1ms);
  EXPECT_GE(Deadline::Clock::now() - start, 20ms);
  EXPECT_GT(polls_, 100);
  EXPECT_EQ(fake_.armed, 1);
  EXPECT_EQ(waiter->counts().waits, 1U);
}

TEST_F(CompletionWaiterTest, AdaptiveKeepsSleepingAfterASpuriousWakeUp) {
  const auto waiter = make(PollingMode::kAdaptive, {.spin = 1ms});
  while (waiter->counts().sleeps == 0) step(*waiter, 0s);
  for (int i = 0; i < 10; ++i) step(*waiter, 0s);
  EXPECT_EQ(waiter->counts().sleeps, 11U);
  EXPECT_FALSE(waiter->spins());
}

TEST_F(CompletionWaiterTest, AdaptiveSpinsAgainAfterEachCompletion) {
  const auto waiter = make(PollingMode::kAdaptive, {.spin = 1s});
  for (int i = 0; i < 100; ++i) {
    step(*waiter, 0s);
    EXPECT_TRUE(waiter->spins());
    EXPECT_TRUE(waiter->step(found, Deadline::never()));
  }
  EXPECT_EQ(waiter->counts().waits, 100U);
  EXPECT_EQ(waiter->counts().sleeps, 0U);
  EXPECT_EQ(fake_.armed, 0);
}

// Epoll ---------------------------------------------------------------------------------------------------------------

TEST_F(CompletionWaiterTest, OnlyEpollHasADescriptorAndWatchesOthers) {
  const UniqueFd other(eventfd(0, EFD_CLOEXEC));
  for (const PollingMode mode : {PollingMode::kBusyPoll, PollingMode::kCompletionChannel, PollingMode::kAdaptive}) {
    const auto waiter = make(mode);
    EXPECT_EQ(waiter->fd(), -1);
    const Status refused = waiter->watch(other.get(), EPOLLIN, [](std::uint32_t) {});
    EXPECT_EQ(refused.code(), Errc::kNotSupported);
    EXPECT_THAT(refused.error().context, HasSubstr("only polling_mode kEpoll"));
    waiter->unwatch(other.get());
  }
  EXPECT_GE(make(PollingMode::kEpoll)->fd(), 0);
}

TEST_F(CompletionWaiterTest, AnApplicationsDescriptorEndsTheSleepAndIsServed) {
  const UniqueFd other(eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK));
  const auto waiter = make(PollingMode::kEpoll);
  int calls = 0;
  ASSERT_TRUE(waiter->watch(other.get(), EPOLLIN, [&](std::uint32_t) { ++calls; }).ok());
  EXPECT_LT(step(*waiter, 10s), 5s);
  EXPECT_EQ(calls, 1);
  waiter->unwatch(other.get());
  EXPECT_GE(step(*waiter, 20ms), 20ms);
  EXPECT_EQ(calls, 1);
}

TEST_F(CompletionWaiterTest, TheDescriptorWakesAnOutsideLoop) {
  const auto waiter = make(PollingMode::kEpoll);
  EXPECT_FALSE(waiter->step_outside(nothing));
  EXPECT_FALSE(readable(waiter->fd()));
  fake_.raise_event(queue_->get());
  EXPECT_TRUE(readable(waiter->fd()));
  EXPECT_FALSE(waiter->step_outside(nothing));  // spurious wake-up: takes the event and arms again
  EXPECT_EQ(fake_.armed, 2);
  EXPECT_FALSE(readable(waiter->fd()));
  waiter->wake();
  EXPECT_TRUE(readable(waiter->fd()));
  EXPECT_EQ(waiter->counts().sleeps, 0U);  // the event belonged to another waiter
}

TEST_F(CompletionWaiterTest, AnOutsideLoopIsWokenIfTheQueueCannotBeArmed) {
  const auto waiter = make(PollingMode::kEpoll);
  fake_.fail("req_notify_cq", EIO);
  EXPECT_FALSE(waiter->step_outside(nothing));
  EXPECT_TRUE(readable(waiter->fd()));
}

TEST_F(CompletionWaiterTest, TooManyOpenFilesIsAnError) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const UniqueFd next(dup(0));  // gets the lowest free number
  rlimit none = before;
  none.rlim_cur = static_cast<rlim_t>(next.get());
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  for (const PollingMode mode : {PollingMode::kCompletionChannel, PollingMode::kEpoll, PollingMode::kAdaptive}) {
    EXPECT_EQ(CompletionWaiter::create(mode, *queue_).code(), std::errc::too_many_files_open) << to_text(mode);
  }
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
}

}  // namespace
}  // namespace rdmacomm
