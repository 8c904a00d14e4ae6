// Which paths belong to the view of the device files.
#include "softdev/preload/files/view_path.h"

#include <gtest/gtest.h>

#include <string>

namespace rdmacomm::softdev::preload {
namespace {

std::string normal(std::string_view path, std::string_view folder = {}) {
  return std::string(NormalPath(folder, path).text());
}

TEST(ViewPath, ItsPathsInAllSpellings) {
  for (const char* path :
       {"/dev/infiniband", "/dev/infiniband/", "/dev/infiniband/uverbs0", "//dev///infiniband/x", "/./dev/./infiniband",
        "/sys/class/infiniband", "/sys/class/infiniband/soft0/ports/1", "/sys//class/infiniband_verbs/uverbs0",
        "/sys/class/infiniband_mad/abi_version", "/sys/class/misc/rdma_cm/dev", "/dev/../dev/infiniband/uverbs0",
        "/sys/../sys/class/infiniband", "../infiniband/soft0", "class/misc/rdma_cm"}) {
    EXPECT_TRUE(may_be_in_view(path)) << path;
  }
}

TEST(ViewPath, OtherPaths) {
  EXPECT_FALSE(may_be_in_view(nullptr));
  for (const char* path : {"",
                           "/",
                           ".",
                           "..",
                           "/dev",
                           "/dev/",
                           "/dev/null",
                           "/dev/infinibandx",
                           "/dev/shm/infiniband",
                           "/sys/class",
                           "/sys/class/net",
                           "/sys/class/infinibandx",
                           "/sys/class/misc",
                           "/sys/class/misc/rdma_cmx",
                           "/sys/infiniband",
                           "/home/dev/infiniband",
                           "/d",
                           "/s",
                           "//",
                           "/.",
                           "file",
                           "/proc/self/maps",
                           "/dev/..",
                           "/sys/.."}) {
    EXPECT_FALSE(may_be_in_view(path)) << path;
  }
}

TEST(ViewPath, NormalForm) {
  EXPECT_EQ(normal("/"), "/");
  EXPECT_EQ(normal("//a/./b//c/"), "/a/b/c");
  EXPECT_EQ(normal("/a/b/../c"), "/a/c");
  EXPECT_EQ(normal("/../../a"), "/a");
  EXPECT_EQ(normal("/a/.."), "/");
  EXPECT_EQ(normal("infiniband/../net", "/sys/class"), "/sys/class/net");
  EXPECT_EQ(normal("/dev/infiniband", "/sys/class"), "/dev/infiniband");
  EXPECT_EQ(normal("infiniband", "(unreachable)/x"), "");
  EXPECT_EQ(normal("infiniband"), "");
}

TEST(ViewPath, PathsBeyondTheLimitHaveNoForm) {
  const std::string longest(PATH_MAX - 3, 'x');
  EXPECT_EQ(normal("/" + longest).size(), longest.size() + 1);
  EXPECT_EQ(normal("/" + longest + "xx"), "");
  EXPECT_EQ(normal(longest, "/sys"), "");
}

TEST(ViewPath, TheEntryThatDecides) {
  EXPECT_EQ(entry_of("/sys/class/infiniband"), "/sys/class/infiniband");
  EXPECT_EQ(entry_of("/sys/class/infiniband/soft0"), "/sys/class/infiniband/soft0");
  EXPECT_EQ(entry_of("/sys/class/infiniband/soft0/ports/1/state"), "/sys/class/infiniband/soft0");
  EXPECT_EQ(entry_of("/sys/class/infiniband_verbs/uverbs0/dev"), "/sys/class/infiniband_verbs/uverbs0");
  EXPECT_EQ(entry_of("/dev/infiniband/uverbs0"), "/dev/infiniband/uverbs0");
  EXPECT_EQ(entry_of("/sys/class/misc/rdma_cm/dev"), "/sys/class/misc/rdma_cm");
  for (const char* path : {"", "/", "/dev", "/sys/class/misc", "/sys/class/infinibandx/soft0", "/dev/null"}) {
    EXPECT_EQ(entry_of(path), std::nullopt) << path;
  }
}

}  // namespace
}  // namespace rdmacomm::softdev::preload
