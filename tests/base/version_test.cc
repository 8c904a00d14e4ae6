#include "rdmacomm/version.h"

#include <gtest/gtest.h>

#include <string>

namespace rdmacomm {
namespace {

TEST(Version, HeadersAndLibraryHaveTheSameVersion) {
  const std::string headers = std::to_string(RDMACOMM_VERSION_MAJOR) + '.' + std::to_string(RDMACOMM_VERSION_MINOR) +
                              '.' + std::to_string(RDMACOMM_VERSION_PATCH);
  EXPECT_EQ(version(), headers);
  EXPECT_EQ(RDMACOMM_VERSION / 10000, RDMACOMM_VERSION_MAJOR);
  EXPECT_EQ(RDMACOMM_VERSION / 100 % 100, RDMACOMM_VERSION_MINOR);
}

}  // namespace
}  // namespace rdmacomm
