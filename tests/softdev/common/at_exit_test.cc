#include "softdev/common/at_exit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace rdmacomm::softdev::test {
namespace {

using ::testing::ExitedWithCode;
using ::testing::HasSubstr;
using ::testing::Not;

void say_it() {
  (void)std::fputs("the end", stderr);
}

TEST(AtExit, IsCalledWhenTheProcessEnds) {
  const auto end = [] {
    const AtExit task(say_it);
    std::exit(3);
  };
  EXPECT_EXIT(end(), ExitedWithCode(3), "the end");
}

TEST(AtExit, IsNotCalledOnceItIsDestroyed) {
  const auto end = [] {
    { const AtExit task(say_it); }
    std::exit(0);
  };
  EXPECT_EXIT(end(), ExitedWithCode(0), Not(HasSubstr("the end")));
}

/// A child must not end objects that belong to its parent.
TEST(AtExit, IsNotCalledInAChildOfItsOwner) {
  const AtExit task(say_it);
  EXPECT_EXIT(std::exit(0), ExitedWithCode(0), Not(HasSubstr("the end")));
}

/// Such a child has its parent's memory, and ends by _exit(), which calls the tasks under softdev-run.
TEST(AtExit, IsNotCalledInAChildOfVfork) {
  const auto end = [] {
    const AtExit task(say_it);
    const pid_t child = vfork();
    if (child == 0) {
      AtExit::run_all();
      _exit(0);
    }
    (void)std::fputs("before ", stderr);
    std::exit(3);
  };
  EXPECT_EXIT(end(), ExitedWithCode(3), "^before the end$");
}

/// While tasks run, no other task may be added or removed. A child that is forked meanwhile is another process and must
/// not wait.
TEST(AtExit, AChildThatIsForkedMeanwhileDoesNotWait) {
  const auto end = [] {
    const AtExit task([] {
      const pid_t child = fork();
      if (child == 0) {
        alarm(20);
        { const AtExit own(say_it); }
        _exit(0);
      }
      int status = -1;
      waitpid(child, &status, 0);
      (void)std::fputs(status == 0 ? "the child has ended" : "the child hung", stderr);
    });
    std::exit(3);
  };
  EXPECT_EXIT(end(), ExitedWithCode(3), "the child has ended");
}

}  // namespace
}  // namespace rdmacomm::softdev::test
