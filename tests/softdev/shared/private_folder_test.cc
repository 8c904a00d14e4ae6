// Folders of this user beside those of others: which of them are trusted.
#include "softdev/shared/private_folder.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string>

namespace rdmacomm::softdev::test {
namespace {

struct PrivateFolder : ::testing::Test {
  std::string parent = ::testing::TempDir() + "private-folder-" + std::to_string(getpid());
  std::string path = parent + "/own";

  void SetUp() override { ASSERT_EQ(mkdir(parent.c_str(), 0700), 0); }
  void TearDown() override { std::filesystem::remove_all(parent); }
  void make(mode_t mode) const {
    ASSERT_EQ(mkdir(path.c_str(), 0700), 0);
    ASSERT_EQ(chmod(path.c_str(), mode), 0);
  }
  /// Returns 0 if it is opened, else the errno value.
  [[nodiscard]] int open(bool makes) const { return open_private_folder(path, makes) ? 0 : errno; }
};

TEST_F(PrivateFolder, IsCreatedOnlyIfWanted) {
  EXPECT_EQ(open(false), ENOENT);
  EXPECT_EQ(open(true), 0);
  EXPECT_EQ(open(false), 0);
}

TEST_F(PrivateFolder, OfOthersIsRefused) {
  for (const mode_t mode : {0710, 0701, 0770, 0707}) {
    make(mode);
    EXPECT_EQ(open(true), EACCES) << mode;
    ASSERT_EQ(rmdir(path.c_str()), 0);
  }
  if (geteuid() != 0) return;
  make(0700);
  ASSERT_EQ(chown(path.c_str(), 1234, 1234), 0);
  EXPECT_EQ(open(true), EACCES);
}

TEST_F(PrivateFolder, IsNoLink) {
  ASSERT_EQ(mkdir((parent + "/other").c_str(), 0700), 0);
  ASSERT_EQ(symlink("other", path.c_str()), 0);
  EXPECT_EQ(open(true), ENOTDIR);
}

TEST_F(PrivateFolder, IsRefusedWhereOthersCanReplaceIt) {
  make(0700);
  ASSERT_EQ(chmod(parent.c_str(), 0777), 0);
  EXPECT_EQ(open(true), EACCES);
  ASSERT_EQ(chmod(parent.c_str(), 01777), 0);
  EXPECT_EQ(open(true), 0) << "the sticky bit protects it";
  if (geteuid() != 0) return;
  ASSERT_EQ(chown(parent.c_str(), 1234, 1234), 0);
  EXPECT_EQ(open(true), EACCES);
}

}  // namespace
}  // namespace rdmacomm::softdev::test
