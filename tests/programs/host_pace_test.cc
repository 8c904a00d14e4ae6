#include "support/host_pace.h"

#include <gtest/gtest.h>

namespace rdmacomm::programs {
namespace {

using namespace std::chrono_literals;

const HostPace::Clock::time_point kPaceBegin{};

TEST(HostPace, ReportsEachHostOnceInAPeriod) {
  HostPace pace;
  const auto is_told = [&](const std::string& peer, std::chrono::milliseconds after) {
    return pace.line(peer, "x", kPaceBegin + after);
  };
  EXPECT_EQ(is_told("10.0.0.1:1", 0ms), "x");
  EXPECT_EQ(is_told("10.0.0.1:2", 0ms), std::nullopt);
  EXPECT_EQ(is_told("[fe80::1]:2", 0ms), "x");
  EXPECT_EQ(is_told("10.0.0.1:3 (host b, pid 7)", HostPace::kPeriod - 1ms), std::nullopt);
  EXPECT_EQ(pace.left_out(), "2 from 10.0.0.1");
  EXPECT_EQ(is_told("10.0.0.1:4", HostPace::kPeriod), "x; 2 more such lines about this host were not printed");
  EXPECT_EQ(is_told("10.0.0.1:5", HostPace::kPeriod), std::nullopt);
  EXPECT_EQ(is_told("10.0.0.1:6", 2 * HostPace::kPeriod), "x; 1 more such lines about this host were not printed");
  EXPECT_EQ(pace.left_out(), "");
}

TEST(HostPace, ReportsAHostUpToTheGivenNumberOfTimes) {
  HostPace pace(3);
  std::size_t lines = 0;
  for (int client = 0; client < 10; ++client) lines += pace.line("10.0.0.1:1", "x", kPaceBegin) ? 1 : 0;
  EXPECT_EQ(lines, 3U);
  EXPECT_EQ(pace.line("10.0.0.1:1", "x", kPaceBegin + HostPace::kPeriod),
            "x; 7 more such lines about this host were not printed");
  EXPECT_EQ(pace.line("10.0.0.1:1", "x", kPaceBegin + HostPace::kPeriod), "x");
}

std::string pace_host(std::size_t number) {
  return "10.0." + std::to_string(number / 250) + "." + std::to_string(number % 250) + ":1";
}

TEST(HostPace, IsBoundedForAnyNumberOfHosts) {
  HostPace pace;
  std::size_t lines = 0;
  for (std::size_t host = 0; host < 1000; ++host) {
    if (pace.line(pace_host(host), "x", kPaceBegin)) ++lines;
  }
  EXPECT_EQ(lines, HostPace::kMaxHosts + 1);
  EXPECT_EQ(pace.left_out(), std::to_string(1000 - lines) + " from other hosts");
  EXPECT_EQ(pace.line("10.0.0.1:2", "x", kPaceBegin + HostPace::kPeriod), "x");
}

TEST(HostPace, AQuietHostIsReplacedByAnotherOne) {
  HostPace pace;
  for (std::size_t host = 0; host < HostPace::kMaxHosts; ++host) {
    for (int client = 0; client < 2; ++client) (void)pace.line(pace_host(host), "x", kPaceBegin);
  }
  EXPECT_EQ(pace.line("10.1.0.1:1", "x", kPaceBegin + HostPace::kPeriod), "x") << "without those of the host before it";
  EXPECT_EQ(pace.line("10.1.0.2:1", "x", kPaceBegin + HostPace::kPeriod), "x");
  EXPECT_NE(pace.left_out().find("2 from other hosts"), std::string::npos) << pace.left_out();
}

}  // namespace
}  // namespace rdmacomm::programs
