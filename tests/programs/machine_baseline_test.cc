#include "support/machine_baseline.h"

#include <gtest/gtest.h>

#include <chrono>

#include "base/spin_lock.h"
#include "support/cpu.h"

namespace rdmacomm::programs {
namespace {

TEST(TickClock, AgreesWithTheSteadyClock) {
  using Steady = std::chrono::steady_clock;
  const TickClock clock;
  const auto began = Steady::now();
  const std::uint64_t first = clock.now();
  while (Steady::now() - began < std::chrono::milliseconds(20)) pause_core();
  const double ticks_ns = clock.ns(clock.now() - first);
  const double steady_ns = static_cast<double>(std::chrono::nanoseconds(Steady::now() - began).count());
  EXPECT_NEAR(ticks_ns / steady_ns, 1.0, 0.05);
  EXPECT_GT(clock.cost_ns(), 0);
}

TEST(MachineBaseline, MeasuresWithTwoCpus) {
  const TickClock clock;
  const auto [first, second] = two_cpus();
  if (second < 0) GTEST_SKIP() << "this machine lets the test have one CPU";
  auto baseline = MachineBaseline::create(clock, second);
  ASSERT_TRUE(baseline.has_value()) << baseline.error().message();
  EXPECT_TRUE((*baseline)->has_second_cpu());
  for (int i = 0; i < 3; ++i) {
    EXPECT_GT((*baseline)->measure_cache_line(), 0);
    ASSERT_TRUE((*baseline)->measure_copy(8).has_value());
    ASSERT_TRUE((*baseline)->measure_copy(65536).has_value());
  }
  EXPECT_GT((*baseline)->cache_line_ns(), 5);
  EXPECT_GT((*baseline)->copy(8).alone, 0);
  EXPECT_GT((*baseline)->copy(65536).alone, 0);
  EXPECT_GT((*baseline)->copy(65536).read_by_other, 0);
  EXPECT_EQ((*baseline)->copy(4096).alone, 0) << "nothing was measured at this size";
}

TEST(MachineBaseline, WorksWithOneCpu) {
  const TickClock clock;
  auto baseline = MachineBaseline::create(clock, -1);
  ASSERT_TRUE(baseline.has_value()) << baseline.error().message();
  EXPECT_FALSE((*baseline)->has_second_cpu());
  EXPECT_EQ((*baseline)->measure_cache_line(), 0);
  ASSERT_TRUE((*baseline)->measure_copy(4096).has_value());
  EXPECT_EQ((*baseline)->cache_line_ns(), 0);
  EXPECT_GT((*baseline)->copy(4096).alone, 0);
  EXPECT_EQ((*baseline)->copy(4096).read_by_other, 0);
}

TEST(MachineBaseline, ReportsAMissingCpu) {
  const TickClock clock;
  const auto baseline = MachineBaseline::create(clock, 1'000'000);
  ASSERT_FALSE(baseline.has_value());
  EXPECT_NE(baseline.error().context.find("CPU 1000000"), std::string::npos);
}

}  // namespace
}  // namespace rdmacomm::programs
