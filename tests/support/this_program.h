// this_program.h - runs the current test program again, as another process.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <string>

namespace rdmacomm::testing {

/// Replaces the calling process, a child of fork(), by this test program, which runs one disabled test and nothing
/// else.
///
/// test  its full name, "Suite.DISABLED_Test"
[[noreturn]] inline void become_disabled_test(const std::string& test) {
  // With the parent's sharding variables the child might run no test at all, and succeed.
  ::unsetenv("GTEST_TOTAL_SHARDS");
  ::unsetenv("GTEST_SHARD_INDEX");
  const std::string filter = "--gtest_filter=" + test;
  ::execl("/proc/self/exe", "tests", "--gtest_also_run_disabled_tests", filter.c_str(), "--gtest_brief=1", nullptr);
  ::_exit(127);
}

}  // namespace rdmacomm::testing
