#include "rdmacomm/deadline.h"

#include <gtest/gtest.h>

namespace rdmacomm {
namespace {

using namespace std::chrono_literals;

TEST(Deadline, NeverIsNeverPassed) {
  const Deadline never = Deadline::never();
  EXPECT_TRUE(never.is_never());
  EXPECT_FALSE(never.passed());
  EXPECT_EQ(never.remaining(), Deadline::Clock::duration::max());
  EXPECT_EQ(never.poll_timeout_ms(), -1);
}

TEST(Deadline, NegativeAndZeroDurationsHavePassedAtOnce) {
  for (const auto from_now : {0ms, -1ms, -1'000'000ms}) {
    const Deadline deadline = Deadline::after(from_now);
    EXPECT_TRUE(deadline.passed());
    EXPECT_EQ(deadline.remaining(), Deadline::Clock::duration::zero());
    EXPECT_EQ(deadline.poll_timeout_ms(), 0);
  }
}

TEST(Deadline, OfTheFutureIsNotPassed) {
  const Deadline deadline = Deadline::after(10min);
  EXPECT_FALSE(deadline.passed());
  EXPECT_GT(deadline.remaining(), 9min);
  EXPECT_LE(deadline.remaining(), 10min);
}

TEST(Deadline, PollTimeoutIsRoundedUpSoThatAWaitDoesNotSpin) {
  EXPECT_LE(Deadline::after(1ns).poll_timeout_ms(), 1);
  const int soon = Deadline::after(1'500us).poll_timeout_ms();
  EXPECT_GE(soon, 1);
  EXPECT_LE(soon, 2);
}

TEST(Deadline, PollTimeoutFitsAnIntForAnyPointInTime) {
  EXPECT_EQ(Deadline::after(24h * 365).poll_timeout_ms(), 3'600'000);
}

TEST(Deadline, SoonerTakesTheEarlier) {
  const auto now = Deadline::Clock::now();
  const Deadline early = Deadline::at(now + 1s);
  const Deadline late = Deadline::at(now + 2s);
  EXPECT_EQ(early.sooner(late).time_point(), now + 1s);
  EXPECT_EQ(late.sooner(early).time_point(), now + 1s);
  EXPECT_EQ(late.sooner(Deadline::never()).time_point(), now + 2s);
  EXPECT_EQ(Deadline::never().sooner(early).time_point(), now + 1s);
}

TEST(Deadline, VeryLongWaitsDoNotWrapAround) {
  EXPECT_FALSE(Deadline::after(Deadline::Clock::duration::max()).passed());
}

TEST(Deadline, ADurationConvertsToADeadline) {
  const auto remaining = [](Deadline deadline) { return deadline.remaining(); };
  EXPECT_GT(remaining(10min), 9min);
  EXPECT_LE(remaining(10min), 10min);
  EXPECT_EQ(remaining(-5s), 0s);
  EXPECT_GT(remaining(std::chrono::duration<double>(0.5e9)), 1000h);
}

TEST(Deadline, ADurationBeyondTheClockIsNeverOrAtOnce) {
  EXPECT_TRUE(Deadline(std::chrono::hours::max()).is_never());
  EXPECT_TRUE(Deadline(std::chrono::hours::min()).passed());
  EXPECT_TRUE(Deadline(std::chrono::duration<double>(1e300)).is_never());
  EXPECT_TRUE(Deadline(std::chrono::nanoseconds::max()).is_never());
}

}  // namespace
}  // namespace rdmacomm
