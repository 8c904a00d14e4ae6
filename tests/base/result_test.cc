#include "rdmacomm/base/result.h"

#include <gtest/gtest.h>

#include <memory>

namespace rdmacomm {
namespace {

TEST(Status, IsOkByDefault) {
  const Status status;
  EXPECT_TRUE(status.ok());
  EXPECT_TRUE(static_cast<bool>(status));
  EXPECT_FALSE(status.code());
  EXPECT_EQ(status.message(), "ok");
}

TEST(Status, CarriesCodeAndContext) {
  const Status status = make_error(Errc::kNoDevice, "there is no mlx5_7");
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(status.code(), Errc::kNoDevice);
  EXPECT_EQ(status.error().context, "there is no mlx5_7");
  EXPECT_EQ(status.message(), "there is no mlx5_7 (no such RDMA device)");
}

TEST(Status, WithoutContextSaysTheCodesOwnWords) {
  EXPECT_EQ(Status(make_error(Errc::kTimeout, "")).message(), "timed out");
}

TEST(Status, KeepsTheOperatingSystemsCodes) {
  const Status status = make_error(std::make_error_code(std::errc::address_in_use), "cannot listen on port 2020");
  EXPECT_EQ(status.code(), std::errc::address_in_use);
  EXPECT_NE(status.code(), Errc::kInvalidArgument);
}

TEST(Result, HoldsAValue) {
  Result<int> result = 7;
  ASSERT_TRUE(result.has_value());
  EXPECT_EQ(*result, 7);
  EXPECT_TRUE(result.status().ok());
  EXPECT_FALSE(result.code());
}

TEST(Result, HoldsAnError) {
  const Result<int> result = make_error(Errc::kStopped, "the session was stopped");
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.code(), Errc::kStopped);
  EXPECT_EQ(result.error().context, "the session was stopped");
  EXPECT_EQ(result.status().code(), Errc::kStopped);
}

TEST(Result, HandsAMoveOnlyValueOver) {
  Result<std::unique_ptr<int>> result = std::make_unique<int>(3);
  const std::unique_ptr<int> owned = std::move(result).value();
  EXPECT_EQ(*owned, 3);
}

TEST(Result, ReachesMembersOfItsValue) {
  Result<std::string> result = std::string("abc");
  EXPECT_EQ(result->size(), 3U);
  const Result<std::string>& constant = result;
  EXPECT_EQ(constant->size(), 3U);
  EXPECT_EQ(*constant, "abc");
}

TEST(ResultDeathTest, EndsTheProgramWhenTheValueOfAFailureIsTaken) {
  Result<int> result = make_error(Errc::kTimeout, "nobody came");
  EXPECT_DEATH((void)result.value(), "Result::value\\(\\) was called.*nobody came \\(timed out\\)");
  EXPECT_DEATH((void)*result, "nobody came");
}

TEST(ResultDeathTest, EndsTheProgramWhenTheErrorOfASuccessIsTaken) {
  const Result<int> result = 7;
  EXPECT_DEATH((void)result.error(), "Result::error\\(\\) was called, but the result has a value");
  EXPECT_DEATH((void)Result<int>(7).error(), "has a value");
  EXPECT_DEATH((void)Status().error(), "Status::error\\(\\) was called, but the status is ok");
}

}  // namespace
}  // namespace rdmacomm
