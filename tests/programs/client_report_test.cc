#include "support/client_report.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <string>

namespace rdmacomm::programs {
namespace {

std::ptrdiff_t lines_of(const std::string& text) {
  return std::ranges::count(text, '\n');
}

TEST(ClientReport, LogsAFewLinesForEachHostAndCountsTheRest) {
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  {
    ClientReport report([] { return HostPace::Clock::time_point{}; });
    for (int i = 0; i < 100; ++i) {
      const std::string peer = "10.0.0.1:" + std::to_string(i);
      report.failed(peer, peer + " has gone");
      report.served(peer);
    }
    report.failed("10.0.0.2:1", "10.0.0.2:1 has gone");
  }
  const std::string out = testing::internal::GetCapturedStdout();
  const std::string err = testing::internal::GetCapturedStderr();
  EXPECT_EQ(lines_of(out), 11) << out;
  EXPECT_TRUE(out.starts_with("served 10.0.0.1:0\nserved 10.0.0.1:1\n")) << out;
  EXPECT_TRUE(out.ends_with("more served clients: 90 from 10.0.0.1\n")) << out;
  EXPECT_EQ(lines_of(err), 3) << err;
  EXPECT_NE(err.find("10.0.0.2:1 has gone\n"), std::string::npos) << err;
  EXPECT_TRUE(err.ends_with("more clients that failed: 99 from 10.0.0.1\n")) << err;
}

}  // namespace
}  // namespace rdmacomm::programs
