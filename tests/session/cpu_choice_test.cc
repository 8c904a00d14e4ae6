#include "session/cpu_choice.h"

#include <gtest/gtest.h>

#include <array>
#include <optional>

namespace rdmacomm {
namespace {

TEST(CpuChoiceTest, TheLeastUsedCpuIsChosen) {
  constexpr std::array kCpus{900, 901, 902};
  const CpuChoice first(kCpus);
  std::optional<CpuChoice> second(kCpus);
  const CpuChoice third(kCpus);
  EXPECT_EQ(first.cpu(), 900);
  EXPECT_EQ(second->cpu(), 901);
  EXPECT_EQ(third.cpu(), 902);
  const CpuChoice fourth(kCpus);
  EXPECT_EQ(fourth.cpu(), 900);
  second.reset();
  const CpuChoice fifth(kCpus);
  EXPECT_EQ(fifth.cpu(), 901);
  // Another list that shares one CPU with the first, as another session or another key may have.
  const CpuChoice elsewhere(std::array{902, 903});
  EXPECT_EQ(elsewhere.cpu(), 903);
}

TEST(CpuChoiceTest, AMovedChoiceCountsOnce) {
  constexpr std::array kCpus{910, 911};
  CpuChoice choice(kCpus);
  CpuChoice moved;
  moved = std::move(choice);
  EXPECT_EQ(moved.cpu(), 910);
  EXPECT_EQ(CpuChoice(kCpus).cpu(), 911);
}

}  // namespace
}  // namespace rdmacomm
