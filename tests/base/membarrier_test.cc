// One barrier for all threads, and the fallback if the system refuses it later.
#include "base/membarrier.h"

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstddef>

namespace rdmacomm::test {
namespace {

/// From now on this process may not call membarrier(2). Returns false if the system does not support filters.
bool refuse_membarrier() {
  sock_filter rules[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{static_cast<unsigned short>(std::size(rules)), rules};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

enum Outcome : int { kPaused, kDidNotPause, kPausedForNothing, kCannotTell };

Outcome try_in_this_process() {
  if (!register_for_membarrier()) return kCannotTell;
  int pauses = 0;
  await_visibility_or([&pauses] { ++pauses; });
  if (pauses != 0) return kPausedForNothing;
  if (!refuse_membarrier()) return kCannotTell;
  await_visibility_or([&pauses] { ++pauses; });
  return pauses == 1 ? kPaused : kDidNotPause;
}

TEST(Membarrier, APauseReplacesItIfTheKernelRefusesItLater) {
  const pid_t child = fork();
  if (child == 0) _exit(try_in_this_process());
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == kCannotTell) GTEST_SKIP() << "membarrier(2) or filters for system calls are not there";
  EXPECT_EQ(WEXITSTATUS(status), kPaused);
}

}  // namespace
}  // namespace rdmacomm::test
