#include "support/available_memory.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

namespace rdmacomm::programs {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;

/// A directory with the same structure as a machine's /proc and /sys.
class Machine : public testing::Test {
 protected:
  Machine() {
    std::string pattern = testing::TempDir() + "machineXXXXXX";
    root_ = ::mkdtemp(pattern.data());
    write("proc/meminfo", "MemTotal: 8388608 kB\nMemFree: 1024 kB\nMemAvailable: 4194304 kB\n");
  }
  ~Machine() override { std::filesystem::remove_all(root_); }

  void write(const std::string& path, const std::string& content) {
    const std::filesystem::path file = root_ + "/" + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << content;
  }
  void version2(const std::string& group, const std::string& limit, std::uint64_t used, std::uint64_t inactive = 0) {
    write("sys/fs/cgroup" + group + "/memory.max", limit + "\n");
    write("sys/fs/cgroup" + group + "/memory.current", std::to_string(used) + "\n");
    write("sys/fs/cgroup" + group + "/memory.stat",
          "anon 1\nfile 2\ninactive_file " + std::to_string(inactive) + "\nactive_file 3\n");
  }
  void version1(const std::string& group, std::uint64_t limit, std::uint64_t used) {
    write("sys/fs/cgroup/memory" + group + "/memory.limit_in_bytes", std::to_string(limit) + "\n");
    write("sys/fs/cgroup/memory" + group + "/memory.usage_in_bytes", std::to_string(used) + "\n");
  }
  [[nodiscard]] std::optional<std::uint64_t> available() const { return available_memory(root_); }

  std::string root_;
};

TEST_F(Machine, WithoutGroupsHasTheAvailableMemory) {
  EXPECT_EQ(available(), 4096 * kMiB);
}

TEST_F(Machine, WithoutInformationIsUnknown) {
  std::filesystem::remove_all(root_ + "/proc");
  EXPECT_EQ(available(), std::nullopt);
}

TEST_F(Machine, AGroupOfVersion2Limits) {
  write("proc/self/cgroup", "0::/user/job\n");
  version2("/user/job", std::to_string(60 * kMiB), 10 * kMiB);
  EXPECT_EQ(available(), 50 * kMiB);
}

TEST_F(Machine, PageCacheThatCanBeDroppedIsAvailable) {
  write("proc/self/cgroup", "0::/job\n");
  version2("/job", std::to_string(60 * kMiB), 50 * kMiB, 40 * kMiB);
  EXPECT_EQ(available(), 50 * kMiB);
}

TEST_F(Machine, TheTightestGroupAroundTheProcessCounts) {
  write("proc/self/cgroup", "0::/outer/inner/innermost\n");
  version2("/outer", std::to_string(100 * kMiB), 90 * kMiB);
  version2("/outer/inner", "max", 20 * kMiB);
  EXPECT_EQ(available(), 10 * kMiB);
}

TEST_F(Machine, AGroupWithoutALimitDoesNotCount) {
  write("proc/self/cgroup", "0::/job\n");
  version2("/job", "max", 10 * kMiB);
  EXPECT_EQ(available(), 4096 * kMiB);
}

TEST_F(Machine, AGroupThatIsOverItsLimitHasNothingLeft) {
  write("proc/self/cgroup", "0::/job\n");
  version2("/job", std::to_string(60 * kMiB), 70 * kMiB);
  EXPECT_EQ(available(), 0u);
}

TEST_F(Machine, AGroupOfVersion1Limits) {
  write("proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/user/job\n1:name=systemd:/init\n");
  version1("/user/job", 60 * kMiB, 20 * kMiB);
  version1("", 0x7ffffffffffff000, 30 * kMiB);  // no limit
  EXPECT_EQ(available(), 40 * kMiB);
}

TEST_F(Machine, InAContainerTheMountIsItsGroup) {
  write("proc/self/cgroup", "4:memory:/docker/4711\n0::/docker/4711\n");  // host paths, not mounted here
  version1("", 60 * kMiB, 10 * kMiB);
  EXPECT_EQ(available(), 50 * kMiB);
}

TEST_F(Machine, WithBothVersionsMountedTheUnifiedOneCounts) {
  write("proc/self/cgroup", "0::/job\n");
  write("sys/fs/cgroup/unified/job/memory.max", std::to_string(60 * kMiB));
  write("sys/fs/cgroup/unified/job/memory.current", std::to_string(10 * kMiB));
  EXPECT_EQ(available(), 50 * kMiB);
}

TEST(AvailableMemory, IsKnownOnThisMachine) {
  EXPECT_TRUE(available_memory().has_value());
}

}  // namespace
}  // namespace rdmacomm::programs
