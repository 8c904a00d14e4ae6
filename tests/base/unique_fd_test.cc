#include "base/unique_fd.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <cerrno>

namespace rdmacomm {
namespace {

int open_null() {
  return ::open("/dev/null", O_RDONLY | O_CLOEXEC);
}
bool is_open(int fd) {
  return ::fcntl(fd, F_GETFD) != -1;
}

TEST(UniqueFd, ClosesItsDescriptor) {
  const int fd = open_null();
  {
    const UniqueFd owner(fd);
    EXPECT_TRUE(owner.valid());
    EXPECT_TRUE(is_open(fd));
  }
  EXPECT_FALSE(is_open(fd));
}

TEST(UniqueFd, MovesTheOwnership) {
  const int fd = open_null();
  UniqueFd first(fd);
  UniqueFd second(std::move(first));
  EXPECT_EQ(second.get(), fd);
  UniqueFd third;
  EXPECT_FALSE(third.valid());
  third = std::move(second);
  EXPECT_EQ(third.get(), fd);
  EXPECT_TRUE(is_open(fd));
}

TEST(UniqueFd, ResetClosesTheOldAndTakesTheNew) {
  const int first = open_null();
  UniqueFd owner(first);
  const int second = open_null();
  owner.reset(second);
  EXPECT_FALSE(is_open(first));
  EXPECT_EQ(owner.get(), second);
}

TEST(UniqueFd, ReleaseLeavesItOpen) {
  const int fd = open_null();
  {
    UniqueFd owner(fd);
    EXPECT_EQ(owner.release(), fd);
    EXPECT_FALSE(owner.valid());
  }
  EXPECT_TRUE(is_open(fd));
  ::close(fd);
}

/// Runs `check` in a child process with closed standard streams. Returns its result, which is the exit status.
template <typename Check>
int without_standard_streams(Check&& check) {
  const pid_t child = ::fork();
  if (child == 0) {
    for (const int fd : {0, 1, 2}) ::close(fd);
    ::_exit(check());
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(UniqueFd, NeverUsesTheNumbersOfTheStandardStreams) {
  const int failed_at = without_standard_streams([] {
    const UniqueFd made(open_null());
    if (made.get() <= 2 || !is_open(made.get())) return 1;
    if ((::fcntl(made.get(), F_GETFD) & FD_CLOEXEC) == 0) return 2;
    UniqueFd replaced;
    replaced.reset(open_null());
    if (replaced.get() <= 2) return 3;
    for (const int fd : {0, 1, 2}) {
      if (is_open(fd)) return 4;
    }
    return 0;
  });
  EXPECT_EQ(failed_at, 0);
}

TEST(UniqueFd, IsEmptyIfNoOtherNumberIsFree) {
  const int failed_at = without_standard_streams([] {
    const rlimit few{3, 3};
    if (::setrlimit(RLIMIT_NOFILE, &few) != 0) return 1;
    const int low = open_null();
    if (low < 0) return 2;
    const UniqueFd made(low);
    if (made.valid() || errno != EINVAL) return 3;  // fcntl(2): no number above 2 is allowed at all
    return is_open(low) ? 4 : 0;
  });
  EXPECT_EQ(failed_at, 0);
}

}  // namespace
}  // namespace rdmacomm
