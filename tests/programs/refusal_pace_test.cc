#include "mesh_comm_service/refusal_pace.h"

#include <gtest/gtest.h>

namespace rdmacomm::mesh {
namespace {

using namespace std::chrono_literals;

const RefusalPace::Clock::time_point kBegin{};

TEST(RefusalPace, TellsOfEachHostOnceInAPeriod) {
  RefusalPace pace;
  EXPECT_EQ(pace.due("10.0.0.1:1", kBegin), 0U);
  EXPECT_EQ(pace.due("10.0.0.1:2", kBegin), std::nullopt);
  EXPECT_EQ(pace.due("[fe80::1]:2", kBegin), 0U);
  EXPECT_EQ(pace.due("10.0.0.1:3", kBegin + RefusalPace::kPeriod - 1ms), std::nullopt);
  EXPECT_EQ(pace.due("10.0.0.1:4", kBegin + RefusalPace::kPeriod), 2U);
  EXPECT_EQ(pace.due("10.0.0.1:5", kBegin + RefusalPace::kPeriod), std::nullopt);
}

TEST(RefusalPace, IsBoundedWhateverTheNumberOfHosts) {
  RefusalPace pace;
  std::size_t lines = 0;
  for (int host = 0; host < 1000; ++host) {
    if (pace.due("10.0." + std::to_string(host / 250) + "." + std::to_string(host % 250) + ":1", kBegin)) ++lines;
  }
  EXPECT_EQ(lines, RefusalPace::kMaxHosts + 1);
  EXPECT_EQ(pace.due("10.0.0.1:2", kBegin + RefusalPace::kPeriod), 0U);
}

}  // namespace
}  // namespace rdmacomm::mesh
