// The destination of log lines.
#include "rdmacomm/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/logging.h"

namespace rdmacomm {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

class Log : public ::testing::Test {
 protected:
  ~Log() override { set_log_sink({}); }

  void keep_lines() {
    set_log_sink([this](LogSeverity severity, std::string_view line) { lines_.emplace_back(severity, line); });
  }

  std::vector<std::pair<LogSeverity, std::string>> lines_;
};

TEST_F(Log, GoesToTheSinkLineByLine) {
  keep_lines();
  RDMACOMM_LOG(WARNING) << "one " << 1;
  RDMACOMM_LOG(ERROR) << "two";
  RDMACOMM_LOG(INFO) << "three";
  EXPECT_THAT(lines_, ElementsAre(Pair(LogSeverity::kWarning, "one 1"), Pair(LogSeverity::kError, "two"),
                                  Pair(LogSeverity::kInfo, "three")));
}

TEST_F(Log, GoesToGlogWithoutASink) {
  keep_lines();
  set_log_sink({});
  ::testing::internal::CaptureStderr();
  RDMACOMM_LOG(ERROR) << "to glog";
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("rdmacomm: to glog\n"));
  EXPECT_THAT(lines_, IsEmpty());
}

// This program does not initialize glog, like many programs that use the library.
TEST_F(Log, WithoutGlogsInitializationALineIsTheOnlyOutput) {
  ::testing::internal::CaptureStderr();
  RDMACOMM_LOG(WARNING) << "only this";
  const std::string shown = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(shown, ::testing::MatchesRegex("W[0-9]+ [0-9:.]+ +[0-9]+ log_test.cc:[0-9]+\\] rdmacomm: only this\n"));
}

TEST_F(Log, EvaluatesItsArgumentsOnlyIfTheLineIsLogged) {
  keep_lines();
  const auto says = [] {
    ADD_FAILURE() << "it is evaluated";
    return "x";
  };
  // An if without braces, as the library has many: the macro is one expression.
  if (max_vlog_level() >= 0) RDMACOMM_VLOG(1 << 20) << says();
  EXPECT_THAT(lines_, IsEmpty());
}

TEST_F(Log, CutsALineThatIsTooLong) {
  keep_lines();
  RDMACOMM_LOG(ERROR) << std::string(100'000, 'x');
  ASSERT_EQ(lines_.size(), 1U);
  EXPECT_GT(lines_[0].second.size(), 10'000U);
  EXPECT_LT(lines_[0].second.size(), 100'000U);
}

TEST_F(Log, ALineLoggedInsideTheSinkGoesToGlog) {
  int calls = 0;
  set_log_sink([&](LogSeverity, std::string_view) {
    ++calls;
    RDMACOMM_LOG(ERROR) << "by the sink";
  });
  ::testing::internal::CaptureStderr();
  RDMACOMM_LOG(ERROR) << "the first";
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("by the sink"));
  EXPECT_EQ(calls, 1);
}

TEST(LogDeathTest, ASinkMustNotReplaceItself) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        set_log_sink([](LogSeverity, std::string_view) { set_log_sink({}); });
        RDMACOMM_LOG(ERROR) << "a line";
      },
      "a bug in this program: a log sink called set_log_sink");
}

TEST_F(Log, AFormerSinkIsNotCalledAgain) {
  std::atomic<bool> over{false};
  std::atomic<int> calls{0};
  // Set before the threads start: sanitizers report a race in the C library if two threads make glog create its own
  // lock.
  set_log_sink([&calls](LogSeverity, std::string_view) { ++calls; });
  std::vector<std::jthread> writers;
  for (int i = 0; i < 3; ++i) {
    writers.emplace_back([&] {
      while (!over) RDMACOMM_LOG(INFO) << "a line";
    });
  }
  for (int round = 0; round < 200 || calls == 0; ++round) {
    auto alive = std::make_shared<std::atomic<bool>>(true);
    set_log_sink([&calls, alive](LogSeverity, std::string_view) {
      EXPECT_TRUE(*alive);
      ++calls;
    });
    std::this_thread::yield();
    set_log_sink([&calls](LogSeverity, std::string_view) { ++calls; });
    *alive = false;
    EXPECT_EQ(alive.use_count(), 1) << "what the former one owned is gone";
  }
  over = true;
  writers.clear();
  EXPECT_GT(calls, 0);
}

}  // namespace
}  // namespace rdmacomm
