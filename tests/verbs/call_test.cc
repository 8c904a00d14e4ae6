#include "verbs/call.h"

#include <gtest/gtest.h>

namespace rdmacomm::verbs {
namespace {

TEST(Call, ValueDialectReturnsTheNumber) {
  EXPECT_TRUE(from_value(0, "query").ok());
  const Status failed = from_value(EINVAL, "modify a queue pair");
  EXPECT_EQ(failed.code(), std::errc::invalid_argument);
  EXPECT_EQ(failed.error().context, "cannot modify a queue pair");
}

TEST(Call, ValueDialectAcceptsNegativeValuesAndMinusOne) {
  EXPECT_EQ(from_value(-ENOMEM, "x").code(), std::errc::not_enough_memory);
  errno = EACCES;
  EXPECT_EQ(from_value(-1, "x").code(), std::errc::permission_denied);
}

TEST(Call, MinusOneDialectReadsErrno) {
  EXPECT_TRUE(from_minus_one(0, "x").ok());
  EXPECT_TRUE(from_minus_one(7, "x").ok());
  errno = EAGAIN;
  EXPECT_EQ(from_minus_one(-1, "x").code(), std::errc::resource_unavailable_try_again);
}

TEST(Call, NullDialectReadsErrno) {
  int thing = 0;
  const auto made = from_null(&thing, "make a thing");
  ASSERT_TRUE(made.has_value());
  EXPECT_EQ(*made, &thing);
  errno = ENODEV;
  const auto failed = from_null<int>(nullptr, "make a thing");
  EXPECT_EQ(failed.code(), std::errc::no_such_device);
  EXPECT_EQ(failed.error().context, "cannot make a thing");
}

}  // namespace
}  // namespace rdmacomm::verbs
