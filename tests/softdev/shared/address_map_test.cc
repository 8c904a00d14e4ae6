// The address map, by ioctl and as text.
#include "softdev/shared/address_map.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

namespace rdmacomm::softdev {
namespace {

class AddressMapTest : public ::testing::TestWithParam<bool> {};

TEST_P(AddressMapTest, FindsAMappingOfAFile) {
  const int fd = memfd_create("address-map-test", MFD_CLOEXEC);
  ASSERT_EQ(ftruncate(fd, 16384), 0);
  void* const memory = mmap(nullptr, 8192, PROT_READ, MAP_SHARED, fd, 4096);
  ASSERT_NE(memory, MAP_FAILED);
  FileIdentity file;
  ASSERT_TRUE(FileIdentity::of(fd, file));
  AddressMap map(GetParam());
  MappedRange range;
  const auto start = reinterpret_cast<std::uintptr_t>(memory);
  for (const std::uintptr_t address : {start + 8191, start, start + 4096}) {  // also backwards
    ASSERT_TRUE(map.find(address, range));
    EXPECT_EQ(range.start, start);
    EXPECT_EQ(range.end, start + 8192);
    EXPECT_EQ(range.offset, 4096U);
    EXPECT_EQ(range.protection, PROT_READ);
    EXPECT_TRUE(range.shared);
    EXPECT_TRUE(file.is_mapped_in(range));
  }
  munmap(memory, 8192);
  close(fd);
}

TEST_P(AddressMapTest, FindsTheNextMappingAndThenTheEnd) {
  AddressMap map(GetParam());
  MappedRange range;
  std::uintptr_t at = 0;
  int found = 0;
  bool has_own_code = false;
  const auto code = reinterpret_cast<std::uintptr_t>(&FileIdentity::of);
  for (; map.find(at, range); at = range.end, ++found) {
    ASSERT_GE(range.start, at);
    ASSERT_GT(range.end, range.start);
    has_own_code = has_own_code || (range.start <= code && code < range.end && (range.protection & PROT_EXEC) != 0 &&
                                    range.inode != 0 && !range.shared);
  }
  EXPECT_GT(found, 5);
  EXPECT_TRUE(has_own_code);
}

INSTANTIATE_TEST_SUITE_P(BothWays, AddressMapTest, ::testing::Values(false, true));

TEST(FileIdentity, OfNoFile) {
  FileIdentity file;
  EXPECT_FALSE(FileIdentity::of(-1, file));
}

}  // namespace
}  // namespace rdmacomm::softdev
