// forked_child.h - a second process, for tests of the interaction of two processes and of the death of one of them.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

namespace rdmacomm::testing {

/// A child process that runs `body`. It is killed at the end of the test if it still runs. Start it before this process
/// opens a device or starts a thread.
class ForkedChild {
 public:
  /// body   gets one end of a socket pair; the other is line()
  explicit ForkedChild(const std::function<void(int line)>& body) {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      close(ends[0]);
      body(ends[1]);
      _exit(::testing::Test::HasFailure() ? 1 : 0);
    }
    close(ends[1]);
    line_ = ends[0];
  }
  ForkedChild(const ForkedChild&) = delete;
  ForkedChild& operator=(const ForkedChild&) = delete;
  ~ForkedChild() {
    kill();
    close(line_);
  }
  [[nodiscard]] int line() const { return line_; }
  /// Stops the process as a debugger or SIGSTOP does. When this returns, none of its threads is running.
  void stop() const {
    ::kill(pid_, SIGSTOP);
    int status = 0;
    EXPECT_EQ(waitpid(pid_, &status, WUNTRACED), pid_);
    EXPECT_TRUE(WIFSTOPPED(status));
  }
  void resume() const { ::kill(pid_, SIGCONT); }
  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    (void)wait();
  }
  int wait() {
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    return status;
  }
  /// Waits until the process stops, continues or ends. Returns the status of waitpid(2).
  int wait_for_change() {
    int status = 0;
    EXPECT_EQ(waitpid(pid_, &status, WUNTRACED | WCONTINUED), pid_);
    if (WIFEXITED(status) || WIFSIGNALED(status)) pid_ = -1;
    return status;
  }

 private:
  pid_t pid_ = -1;
  int line_ = -1;
};

}  // namespace rdmacomm::testing
