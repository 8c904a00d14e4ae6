// Device nodes that the library serves, by the functions of the C library that programs call.
#include "softdev/preload/files/device_node.h"

#include <dirent.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace rdmacomm::softdev::preload {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

/// Records its calls.
struct RecordingNode : DeviceNode {
  int open(int flags) noexcept override {
    opened_with = flags;
    return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  }
  ssize_t write(int fd, const void* data, std::size_t length) noexcept override {
    if (records_writes) written.emplace_back(fd, std::string(static_cast<const char*>(data), length));
    return static_cast<ssize_t>(length);
  }
  void closed(int fd) noexcept override { closed_ones.push_back(fd); }
  void moved(int from, int to) noexcept override { moves.emplace_back(from, to); }

  void reset() {
    opened_with = -1;
    records_writes = true;
    written.clear();
    closed_ones.clear();
    moves.clear();
  }

  int opened_with = -1;
  bool records_writes = true;  // it allocates memory for that
  std::vector<std::pair<int, std::string>> written;
  std::vector<int> closed_ones;
  std::vector<std::pair<int, int>> moves;
};

RecordingNode& node() {
  static RecordingNode* const only = [] {
    auto* const made = new RecordingNode;
    serve_device_node(kConnectionManagerNode, *made);
    return made;
  }();
  return *only;
}

class DeviceNodes : public ::testing::Test {
 protected:
  DeviceNodes() { node().reset(); }
  ~DeviceNodes() override { EXPECT_FALSE(any_node_is_open()); }
  static int open_it() { return open("/dev/infiniband/rdma_cm", O_RDWR | O_CLOEXEC); }
};

TEST_F(DeviceNodes, OpenWriteClose) {
  const int fd = open_it();
  ASSERT_GE(fd, 0);
  EXPECT_EQ(node().opened_with, O_RDWR | O_CLOEXEC);
  EXPECT_EQ(write(fd, "abc", 3), 3);
  const iovec parts[] = {{const_cast<char*>("de"), 2}, {nullptr, 0}, {const_cast<char*>("f"), 1}};
  EXPECT_EQ(writev(fd, parts, 3), 3);
  EXPECT_THAT(node().written, ElementsAre(Pair(fd, "abc"), Pair(fd, "def")));
  EXPECT_THAT(node().closed_ones, IsEmpty());
  EXPECT_EQ(close(fd), 0);
  EXPECT_THAT(node().closed_ones, ElementsAre(fd));
  EXPECT_EQ(close(fd), -1);
  EXPECT_EQ(errno, EBADF);
}

TEST_F(DeviceNodes, IsACharacterDevice) {
  struct stat by_path {};
  struct stat by_descriptor {};
  const int fd = open_it();
  ASSERT_EQ(stat("/dev/infiniband/rdma_cm", &by_path), 0);
  ASSERT_EQ(fstat(fd, &by_descriptor), 0);
  EXPECT_TRUE(S_ISCHR(by_path.st_mode));
  EXPECT_TRUE(S_ISCHR(by_descriptor.st_mode));
  EXPECT_EQ(by_path.st_rdev, by_descriptor.st_rdev);
  struct statx more {};
  ASSERT_EQ(statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &more), 0);
  EXPECT_TRUE(S_ISCHR(more.stx_mode));
  EXPECT_EQ(makedev(more.stx_rdev_major, more.stx_rdev_minor), by_path.st_rdev);
  close(fd);
  char text[32] = {};
  const int dev = open("/sys/class/misc/rdma_cm/dev", O_RDONLY);
  EXPECT_GT(read(dev, text, sizeof(text) - 1), 0);
  close(dev);
  EXPECT_EQ(text, std::to_string(major(by_path.st_rdev)) + ":" + std::to_string(minor(by_path.st_rdev)) + "\n");
}

TEST_F(DeviceNodes, DuplicatesAreOneFile) {
  const int fd = open_it();
  const int copy = dup(fd);
  const int third = fcntl(fd, F_DUPFD_CLOEXEC, 100);
  EXPECT_GE(third, 100);
  EXPECT_EQ(write(third, "a", 1), 1);
  EXPECT_EQ(close(fd), 0);
  EXPECT_THAT(node().moves, ElementsAre(Pair(fd, copy)));
  EXPECT_EQ(write(third, "b", 1), 1);
  EXPECT_EQ(close(third), 0);
  EXPECT_THAT(node().closed_ones, IsEmpty());
  EXPECT_EQ(close(copy), 0);
  EXPECT_THAT(node().written, ElementsAre(Pair(fd, "a"), Pair(copy, "b")));
  EXPECT_THAT(node().closed_ones, ElementsAre(copy));
}

TEST_F(DeviceNodes, Dup2ClosesItsTarget) {
  const int fd = open_it();
  const int other = open_it();
  EXPECT_EQ(dup2(fd, fd), fd);
  EXPECT_EQ(dup2(fd, other), other);
  EXPECT_THAT(node().closed_ones, ElementsAre(other));
  EXPECT_EQ(dup2(-1, other), -1);
  EXPECT_EQ(write(other, "x", 1), 1);
  EXPECT_THAT(node().written, ElementsAre(Pair(fd, "x")));
  EXPECT_EQ(close_range(static_cast<unsigned>(std::min(fd, other)), static_cast<unsigned>(std::max(fd, other)), 0), 0);
  EXPECT_EQ(node().closed_ones.size(), 2U);
}

TEST_F(DeviceNodes, ANumberThatIsUsedAgainIsAnotherFile) {
  const int fd = open_it();
  syscall(SYS_close, fd);  // not seen by the library
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  ASSERT_TRUE(ends[0] == fd || ends[1] == fd);
  EXPECT_EQ(write(ends[1], "pipe", 4), 4);
  char text[8] = {};
  EXPECT_EQ(read(ends[0], text, sizeof(text)), 4);
  EXPECT_THAT(node().written, IsEmpty());
  close(ends[0]);
  close(ends[1]);
}

TEST_F(DeviceNodes, AChildHasTheDescriptors) {
  const int fd = open_it();
  const pid_t child = fork();
  if (child == 0) {
    const bool written = write(fd, "child", 5) == 5 && node().written.size() == 1;
    close(fd);
    _exit(written && node().closed_ones.size() == 1 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_THAT(node().closed_ones, IsEmpty());
  close(fd);
}

std::atomic<int> forks{0};

/// A handler may have interrupted its thread in a look at the table of descriptors.
TEST_F(DeviceNodes, AHandlerMayFork) {
  const int fd = open_it();
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);  // ends the process if it waits for itself
    struct sigaction action {};
    action.sa_handler = [](int) {
      const pid_t grandchild = fork();
      if (grandchild == 0) _exit(0);
      waitpid(grandchild, nullptr, 0);
      ++forks;
    };
    action.sa_flags = SA_RESTART;
    sigaction(SIGUSR1, &action, nullptr);
    std::thread signals([target = pthread_self()] {
      for (int sent = 0; sent < 20; ++sent) {
        pthread_kill(target, SIGUSR1);
        while (forks <= sent) std::this_thread::yield();
      }
    });
    node().records_writes = false;  // glibc's fork() waits for an allocation that the handler has interrupted
    bool all_written = true;
    while (forks < 20) all_written = write(fd, "x", 1) == 1 && all_written;
    signals.join();
    _exit(all_written ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  close(fd);
}

TEST_F(DeviceNodes, AChildOfVforkClosesOnlyItsOwn) {
  const int fd = open_it();
  const pid_t child = vfork();
  if (child == 0) {
    close(fd);
    _exit(0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_THAT(node().closed_ones, IsEmpty());
  EXPECT_EQ(write(fd, "x", 1), 1);
  EXPECT_THAT(node().written, ElementsAre(Pair(fd, "x")));
  close(fd);
}

TEST_F(DeviceNodes, OtherDescriptorsAreNotConcerned) {
  const int fd = open_it();
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  EXPECT_EQ(write(ends[1], "x", 1), 1);
  const int copy = dup(ends[1]);
  close(copy);
  close(ends[0]);
  close(ends[1]);
  EXPECT_EQ(write(-1, "x", 1), -1);
  EXPECT_EQ(close(1 << 20), -1);
  EXPECT_THAT(node().written, IsEmpty());
  close(fd);
}

}  // namespace
}  // namespace rdmacomm::softdev::preload
