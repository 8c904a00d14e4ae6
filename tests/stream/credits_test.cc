#include "stream/credits.h"

#include <gtest/gtest.h>

namespace rdmacomm {
namespace {

TEST(Credits, CountTakenAndReturnedOnes) {
  Credits receives;
  receives.take();
  receives.take();
  EXPECT_EQ(receives.in_use(), 2U);
  EXPECT_EQ(receives.give_back_until(1), 1U);
  EXPECT_EQ(receives.give_back_until(1), 0U);
  EXPECT_EQ(receives.in_use(), 1U);
}

TEST(Credits, MoreThanIsInUseIsRefused) {
  Credits receives;
  receives.take();
  EXPECT_FALSE(receives.give_back_until(2));
  EXPECT_FALSE(receives.give_back_until(kCreditModulus - 1)) << "back in time";
  EXPECT_EQ(receives.give_back_until(1), 1U);
}

TEST(Credits, TheReaderCountsUnreportedCredits) {
  Credits receives;
  for (int i = 0; i < 3; ++i) receives.take();
  receives.give_back();
  receives.give_back();
  EXPECT_EQ(receives.unreported(), 2U);
  EXPECT_EQ(receives.in_use_as_reported(), 3U);
  receives.note_reported();
  EXPECT_EQ(receives.unreported(), 0U);
  EXPECT_EQ(receives.in_use_as_reported(), 1U);
}

TEST(Credits, WrapAroundAtTheirModulus) {
  Credits receives;
  for (std::uint32_t i = 0; i < kCreditModulus + 5; ++i) {
    receives.take();
    receives.give_back();
  }
  EXPECT_EQ(receives.given_back(), 5U);
  receives.take();
  EXPECT_EQ(receives.give_back_until(6), 1U);
}

}  // namespace
}  // namespace rdmacomm
