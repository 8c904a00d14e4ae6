#include "base/start_thread.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <future>

namespace rdmacomm {
namespace {

using ::testing::HasSubstr;

std::string name_of(std::thread& thread) {
  char name[64] = {};
  EXPECT_EQ(pthread_getname_np(thread.native_handle(), name, sizeof(name)), 0);
  return name;
}

/// A thread that waits until the test releases it.
struct Waiting {
  explicit Waiting(const std::string& name) {
    started = start_thread(thread, name, [this, end = let_go.get_future()] {
      runs.set_value();
      end.wait();
    });
    if (started) runs.get_future().wait();
  }
  ~Waiting() {
    let_go.set_value();
    thread.join();
  }
  std::promise<void> runs;
  std::promise<void> let_go;
  std::thread thread;
  Status started;
};

int first_allowed_cpu() {
  cpu_set_t allowed;
  EXPECT_EQ(sched_getaffinity(0, sizeof(allowed), &allowed), 0);
  unsigned cpu = 0;
  while (!CPU_ISSET(cpu, &allowed)) ++cpu;
  return static_cast<int>(cpu);
}

TEST(StartThread, NamesItsThreads) {
  Waiting waiting("short");
  ASSERT_TRUE(waiting.started.ok());
  EXPECT_EQ(name_of(waiting.thread), "short");
}

TEST(StartThread, NamesThemBeforeTheirFunctionRuns) {
  for (int i = 0; i < 100; ++i) {
    std::thread thread;
    char name[64] = {};
    ASSERT_TRUE(start_thread(thread, "itself", [&] { pthread_getname_np(pthread_self(), name, sizeof(name)); }));
    thread.join();
    ASSERT_STREQ(name, "itself");
  }
}

TEST(StartThread, CutsLongNamesOff) {
  Waiting waiting("a name of more than fifteen bytes");
  EXPECT_EQ(name_of(waiting.thread), "a name of more ");
}

TEST(PinThread, KeepsAThreadOnItsCpu) {
  Waiting waiting("pinned");
  const int cpu = first_allowed_cpu();
  ASSERT_TRUE(pin_thread(waiting.thread, cpu).ok());
  cpu_set_t set;
  ASSERT_EQ(pthread_getaffinity_np(waiting.thread.native_handle(), sizeof(set), &set), 0);
  EXPECT_EQ(CPU_COUNT(&set), 1);
  EXPECT_TRUE(CPU_ISSET(static_cast<unsigned>(cpu), &set));
}

TEST(PinThread, AMissingCpuIsRefusedWithItsNumber) {
  Waiting waiting("pinned");
  for (const int cpu : {-1, CPU_SETSIZE - 1, CPU_SETSIZE}) {
    const Status refused = pin_thread(waiting.thread, cpu);
    EXPECT_EQ(refused.code(), std::errc::invalid_argument);
    EXPECT_THAT(refused.error().context, HasSubstr("CPU " + std::to_string(cpu)));
  }
}

}  // namespace
}  // namespace rdmacomm
