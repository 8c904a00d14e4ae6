#include "support/child_process.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

namespace rdmacomm::programs {
namespace {

using std::chrono::seconds;

bool alive(pid_t pid) {
  return kill(pid, 0) == 0;
}

TEST(ServerProcess, ReportsItsPortAndItsEnd) {
  auto server = ServerProcess::start(
      [](const auto& listening) {
        listening(40'001);
        return 0;
      },
      seconds(10));
  ASSERT_TRUE(server.has_value()) << server.error().message();
  EXPECT_EQ((*server)->port(), 40'001);
  EXPECT_TRUE((*server)->wait(seconds(10)).ok());
}

TEST(ServerProcess, ThatEndsBeforeItListensIsAnError) {
  const auto server = ServerProcess::start([](const auto&) { return 3; }, seconds(10));
  ASSERT_FALSE(server.has_value());
  EXPECT_EQ(server.code(), Errc::kPeerLost);
}

TEST(ServerProcess, ReportsHowItEnded) {
  auto failing = ServerProcess::start(
      [](const auto& listening) {
        listening(1);
        return 3;
      },
      seconds(10));
  ASSERT_TRUE(failing.has_value());
  EXPECT_NE((*failing)->wait(seconds(10)).message().find("exit status 3"), std::string::npos);

  auto killed = ServerProcess::start(
      [](const auto& listening) {
        listening(1);
        for (;;) pause();
        return 0;
      },
      seconds(10));
  ASSERT_TRUE(killed.has_value());
  kill((*killed)->pid(), SIGKILL);
  EXPECT_NE((*killed)->wait(seconds(10)).message().find("signal 9"), std::string::npos);
}

// With SIGCHLD ignored the system does not keep the exit status. That the process has ended is known.
TEST(ServerProcess, ItsEndIsNoticedEvenIfTheSystemKeepsNoStatus) {
  const auto kept = signal(SIGCHLD, SIG_IGN);
  auto server = ServerProcess::start(
      [](const auto& listening) {
        listening(1);
        return 0;
      },
      seconds(10));
  ASSERT_TRUE(server.has_value()) << server.error().message();
  const Status ended = (*server)->wait(seconds(10));
  (void)signal(SIGCHLD, kept);
  EXPECT_TRUE(ended.ok()) << ended.message();
}

TEST(ServerProcess, IsEndedWithItsOwner) {
  pid_t pid = 0;
  {
    auto server = ServerProcess::start(
        [](const auto& listening) {
          listening(1);
          for (;;) pause();
          return 0;
        },
        seconds(10));
    ASSERT_TRUE(server.has_value());
    pid = (*server)->pid();
    EXPECT_TRUE(alive(pid));
  }
  EXPECT_FALSE(alive(pid));
}

}  // namespace
}  // namespace rdmacomm::programs
