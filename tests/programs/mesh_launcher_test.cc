#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <fstream>
#include <iostream>
#include <string>

#include "mesh_comm_service/launcher.h"
#include "rdmacomm/deadline.h"

namespace rdmacomm::mesh {
namespace {

using testing::HasSubstr;

/// 'S': sleeps, 'Z': has ended; ...
char state_of(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  std::getline(file, line);
  const auto name_ends = line.rfind(')');
  return name_ends == std::string::npos ? 'Z' : line.at(name_ends + 2);
}

[[nodiscard]] bool wait_for_state(pid_t pid, char state) {
  const Deadline deadline = Deadline::after(std::chrono::seconds(30));
  while (state_of(pid) != state && !deadline.passed()) {
  }
  return state_of(pid) == state;
}

// Node 0 has reported its address, and is killed before node 1 has: the list of nodes cannot be sent to it.
TEST(Launcher, NamesTheNodeThatWasKilledWhileTheOthersStart) {
  std::array<int, 2> pipe_ends{};
  ASSERT_EQ(pipe(pipe_ends.data()), 0);
  const auto node = [&](int rank, const std::function<Result<Cluster>(std::uint16_t)>& find_cluster,
                        const auto& /*summarize*/) {
    if (rank == 0) {
      const pid_t self = getpid();
      if (write(pipe_ends[1], &self, sizeof(self)) != sizeof(self)) return 2;
      return find_cluster(1).has_value() ? 3 : 4;
    }
    pid_t victim = 0;
    if (read(pipe_ends[0], &victim, sizeof(victim)) != sizeof(victim)) return 5;
    if (!wait_for_state(victim, 'S')) return 6;  // in find_cluster(), which waits for the others
    kill(victim, SIGKILL);
    if (!wait_for_state(victim, 'Z')) return 7;
    return find_cluster(2).has_value() ? 0 : 1;
  };
  testing::internal::CaptureStderr();
  const int outcome = run_local(2, node);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(outcome, 1);
  EXPECT_THAT(said, HasSubstr(": node 0 (pid "));
  EXPECT_THAT(said, HasSubstr(") was ended by signal 9\n"));
  EXPECT_EQ(std::ranges::count(said, '\n'), 1) << said;
  close(pipe_ends[0]);
  close(pipe_ends[1]);
}

TEST(Launcher, PrintsTheSummaryLastAndAWarningOnce) {
  const auto node = [&](int rank, const std::function<Result<Cluster>(std::uint16_t)>& find_cluster,
                        const std::function<void(std::string_view)>& summarize) {
    if (rank == 0) summarize("all: 3\n");
    std::cerr << "W1125 22:07:38.12345" << rank << " 4711 device.cc:1] no hardware\n"
              << "I1125 22:07:38.123456 4711 node.cc:1] of each node\n"
              << std::flush;
    if (!find_cluster(1).has_value()) return 1;
    std::cout << "figures of " << rank << '\n' << std::flush;
    return 0;
  };
  testing::internal::CaptureStderr();
  testing::internal::CaptureStdout();
  const int outcome = run_local(3, node);
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "figures of 0\n[1] figures of 1\n[2] figures of 2\nall: 3\n");
  const std::string logged = testing::internal::GetCapturedStderr();
  EXPECT_EQ(outcome, 0) << logged;
  EXPECT_EQ(std::ranges::count(logged, '\n'), 4) << logged;
  EXPECT_EQ(logged.find("no hardware"), logged.rfind("no hardware")) << logged;
}

// With SIGCHLD ignored the system does not keep exit statuses, so it is unknown whether all nodes succeeded.
TEST(Launcher, EndsIfTheSystemDoesNotKeepEndedChildren) {
  const auto kept = std::signal(SIGCHLD, SIG_IGN);
  const int outcome =
      run_local(2, [](int, const auto& find_cluster, const auto&) { return find_cluster(1).has_value() ? 0 : 1; });
  (void)std::signal(SIGCHLD, kept);
  EXPECT_EQ(outcome, 1);
}

}  // namespace
}  // namespace rdmacomm::mesh
