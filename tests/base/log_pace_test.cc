#include "base/log_pace.h"

#include <gtest/gtest.h>

namespace rdmacomm {
namespace {

using namespace std::chrono_literals;

TEST(LogPace, LetsOneThroughEachPeriodAndCountsTheRest) {
  constexpr LogPace::Clock::time_point kStart{1h};
  LogPace pace;
  EXPECT_EQ(pace.due(kStart), 0U);
  for (int i = 0; i < 1000; ++i) EXPECT_FALSE(pace.due(kStart + 1ms * i));
  EXPECT_FALSE(pace.due(kStart + LogPace::kPeriod - 1ns));
  EXPECT_EQ(pace.due(kStart + LogPace::kPeriod), 1001U);
  EXPECT_FALSE(pace.due(kStart + LogPace::kPeriod));
  EXPECT_EQ(pace.due(kStart + 1h), 1U);
  EXPECT_EQ(pace.due(kStart + 2h), 0U);
}

}  // namespace
}  // namespace rdmacomm
