#include "base/check_range.h"

#include <gtest/gtest.h>

namespace rdmacomm {
namespace {

TEST(CheckRange, BoundsAreInclusive) {
  for (const int value : {1, 2, 3}) EXPECT_TRUE(check_range("count", value, {.low = 1, .high = 3})) << value;
  for (const int value : {0, 4})
    EXPECT_EQ(check_range("count", value, {.low = 1, .high = 3}).code(), Errc::kInvalidArgument);
}

TEST(CheckRange, NamesTheValueAndTheAllowedRange) {
  EXPECT_EQ(check_range("patience", 0, {.low = 1, .high = 3600, .unit = " s"}).error().context,
            "patience is 0 s; it must be 1..3600 s");
}

TEST(CheckRange, ALimitOfTheDeviceIsReportedAsSuch) {
  const Range range{.low = 1, .high = 128, .high_of_device = true};
  const Status above = check_range("depth", 129, range);
  EXPECT_EQ(above.code(), Errc::kBeyondDeviceLimit);
  EXPECT_EQ(above.error().context, "depth is 129; it must be 1..128 on this device");
  EXPECT_EQ(check_range("depth", 0, range).code(), Errc::kInvalidArgument);
}

}  // namespace
}  // namespace rdmacomm
