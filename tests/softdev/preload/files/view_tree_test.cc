// The folder with the files of the view: one for all processes, and none after the last one.
#include "softdev/preload/files/view_tree.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "support/forked_child.h"

namespace rdmacomm::softdev::preload {
namespace {

namespace fs = std::filesystem;
using Kind = ViewEntry::Kind;

std::vector<ViewEntry> entries(const std::string& state) {
  return {{.kind = Kind::kFolder, .path = "/sys/class/infiniband", .text = {}},
          {.kind = Kind::kFile, .path = "/sys/class/infiniband/x/ports/1/state", .text = state},
          {.kind = Kind::kLink, .path = "/sys/class/infiniband/x/device", .text = "../elsewhere"},
          {.kind = Kind::kNode, .path = "/dev/infiniband/uverbs7", .text = {}, .device = makedev(231, 199)}};
}

class ViewTrees : public ::testing::Test {
 protected:
  ViewTrees() {
    std::string pattern = fs::temp_directory_path() / "rdmacomm-test-XXXXXX";
    folder_ = mkdtemp(pattern.data());
    base_ = folder_ / "rdmacomm-files-0";
  }
  ~ViewTrees() override { fs::remove_all(folder_); }

  [[nodiscard]] std::vector<std::string> trees() const {
    std::vector<std::string> names;
    if (!fs::exists(base_)) return names;
    for (const auto& entry : fs::directory_iterator(base_)) names.push_back(entry.path().filename());
    return names;
  }

  fs::path folder_;
  fs::path base_;
};

std::string text(const fs::path& path) {
  std::string line;
  std::getline(std::ifstream(path), line);
  return line;
}

TEST_F(ViewTrees, HasItsEntries) {
  ViewTree tree;
  ASSERT_EQ(tree.join(base_, entries("4: ACTIVE\n")), 0);
  EXPECT_TRUE(tree.is_intact());
  const fs::path root(tree.root());
  EXPECT_EQ(text(root / "sys/class/infiniband/x/ports/1/state"), "4: ACTIVE");
  EXPECT_EQ(fs::read_symlink(root / "sys/class/infiniband/x/device"), "../elsewhere");
  EXPECT_EQ(fs::status(base_).permissions(), fs::perms::owner_all);
  tree.leave();
  EXPECT_FALSE(fs::exists(base_));
  EXPECT_FALSE(tree.is_intact());
}

TEST_F(ViewTrees, AFileStandsForADevice) {
  ViewTree tree;
  ASSERT_EQ(tree.join(base_, entries("")), 0);
  struct stat found {};
  ASSERT_EQ(fstatat(AT_FDCWD, (std::string(tree.root()) + "/dev/infiniband/uverbs7").c_str(), &found, 0), 0);
  EXPECT_EQ(marked_device(found.st_mode, found.st_uid, found.st_mtim.tv_sec), makedev(231, 199));
  // Another file's time, owner and mode give no device.
  EXPECT_EQ(marked_device(found.st_mode, found.st_uid, 1'700'000'000), dev_t{0});
  EXPECT_EQ(marked_device(found.st_mode, found.st_uid + 1, found.st_mtim.tv_sec), dev_t{0});
  EXPECT_EQ(marked_device(S_IFREG | 0666, found.st_uid, found.st_mtim.tv_sec), dev_t{0});
  tree.leave();
}

TEST_F(ViewTrees, EqualEntriesShareATree) {
  ViewTree first;
  ViewTree second;
  ViewTree other;
  ASSERT_EQ(first.join(base_, entries("4: ACTIVE\n")), 0);
  ASSERT_EQ(second.join(base_, entries("4: ACTIVE\n")), 0);
  ASSERT_EQ(other.join(base_, entries("1: DOWN\n")), 0);
  EXPECT_STREQ(first.root(), second.root());
  EXPECT_EQ(trees().size(), 2U);
  first.leave();
  EXPECT_TRUE(second.is_intact());
  EXPECT_EQ(trees().size(), 2U);
  second.leave();
  EXPECT_EQ(trees().size(), 1U);
  other.leave();
  EXPECT_FALSE(fs::exists(base_));
}

TEST_F(ViewTrees, AChildKeepsTheTreeOfItsParent) {
  ViewTree tree;
  ASSERT_EQ(tree.join(base_, entries("")), 0);
  const testing::ForkedChild child([](int line) {
    char byte = 0;
    (void)!read(line, &byte, 1);
  });
  tree.leave();
  EXPECT_EQ(trees().size(), 1U);
}

TEST_F(ViewTrees, LeftoversOfKilledProcessesAreRemoved) {
  testing::ForkedChild child([this](int line) {
    ViewTree tree;
    const int error = tree.join(base_, entries("a\n"));
    (void)!write(line, &error, sizeof(error));
    pause();
  });
  int error = -1;
  ASSERT_EQ(read(child.line(), &error, sizeof(error)), static_cast<ssize_t>(sizeof(error)));
  ASSERT_EQ(error, 0);
  child.kill();
  ASSERT_EQ(trees().size(), 1U);
  fs::create_directories(base_ / ".new-1-0" / "sys");  // of a process that was killed while it made a tree
  ViewTree tree;
  ASSERT_EQ(tree.join(base_, entries("b\n")), 0);
  EXPECT_EQ(trees().size(), 1U);
  tree.leave();
}

/// Each level is tried a few times, so it must not be many times at all levels together.
TEST_F(ViewTrees, LeftoversThatAreTooDeepDelayNobody) {
  fs::path deep = base_ / "0123456789abcdef";
  for (int level = 0; level < 20; ++level) deep /= "level";
  fs::create_directories(deep);
  fs::permissions(base_, fs::perms::owner_all);
  ViewTree tree;
  ASSERT_EQ(tree.join(base_, entries("")), 0);
  tree.leave();
  fs::remove_all(base_);
}

TEST_F(ViewTrees, ATreeThatAProcessIsRemovingIsNotUsed) {
  ViewTree tree;
  ASSERT_EQ(tree.join(base_, entries("")), 0);
  const std::string root = tree.root();
  const int lock = open(root.c_str(), O_RDONLY | O_DIRECTORY);
  tree.leave();
  ASSERT_EQ(mkdir(base_.c_str(), 0700), 0);
  ASSERT_EQ(mkdir(root.c_str(), 0700), 0);
  const int removing = open(root.c_str(), O_RDONLY | O_DIRECTORY);
  ASSERT_EQ(flock(removing, LOCK_EX), 0);
  ViewTree next;
  ASSERT_EQ(next.join(base_, entries("")), 0);
  EXPECT_STRNE(next.root(), root.c_str());
  next.leave();
  close(removing);
  close(lock);
}

TEST_F(ViewTrees, AFolderThatOthersCanChangeIsRefused) {
  ASSERT_EQ(mkdir(base_.c_str(), 0700), 0);
  ASSERT_EQ(chmod(base_.c_str(), 0770), 0);
  ViewTree tree;
  EXPECT_EQ(tree.join(base_, entries("")), EACCES);
  ASSERT_EQ(chmod(base_.c_str(), 0700), 0);
  ASSERT_EQ(chmod(folder_.c_str(), 0777), 0);
  EXPECT_EQ(tree.join(base_, entries("")), EACCES);
  ASSERT_EQ(chmod(folder_.c_str(), 01777), 0);
  EXPECT_EQ(tree.join(base_, entries("")), 0);
  tree.leave();
}

TEST_F(ViewTrees, ALinkToAFolderIsRefused) {
  fs::create_directory(folder_ / "target");
  fs::create_directory_symlink(folder_ / "target", base_);
  ViewTree tree;
  EXPECT_NE(tree.join(base_, entries("")), 0);
}

TEST_F(ViewTrees, AFolderOfAnotherUserIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can make such a folder";
  ASSERT_EQ(mkdir(base_.c_str(), 0700), 0);
  ASSERT_EQ(chown(base_.c_str(), 65534, 65534), 0);
  ViewTree tree;
  EXPECT_EQ(tree.join(base_, entries("")), EACCES);
}

TEST_F(ViewTrees, AClosedLockIsNoticed) {
  ViewTree tree;
  ASSERT_EQ(tree.join(base_, entries("")), 0);
  closefrom(512);  // as programs do that close all descriptors
  EXPECT_FALSE(tree.is_intact());
  tree.leave();
  ViewTree next;  // the tree has no user, and is used again
  ASSERT_EQ(next.join(base_, entries("")), 0);
  next.leave();
  EXPECT_FALSE(fs::exists(base_));
}

TEST(WithoutTree, OnlyPathsOfTheView) {
  EXPECT_STREQ(without_tree("/dev/shm/rdmacomm-files-0/0123456789abcdef/sys/class/infiniband/x"),
               "/sys/class/infiniband/x");
  for (const char* path :
       {"/", "/dev/shm/rdmacomm-files-0", "/dev/shm/rdmacomm-files-0/0123456789abcdef",
        "/dev/shm/rdmacomm-files-0/0123456789abcdef/etc", "/rdmacomm-files-0/short/sys/class/infiniband"}) {
    EXPECT_STREQ(without_tree(path), path);
  }
}

}  // namespace
}  // namespace rdmacomm::softdev::preload
