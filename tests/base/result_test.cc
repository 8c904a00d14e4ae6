#include "rdmacomm/result.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <memory>
#include <type_traits>

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

TEST(Status, WithoutContextHasTheTextOfTheCode) {
  EXPECT_EQ(Status(make_error(Errc::kTimeout, "")).message(), "timed out");
}

TEST(Status, DoesNotRepeatTheTextOfTheCode) {
  EXPECT_EQ(Status(make_error(Errc::kTimeout, "the call has timed out")).message(), "the call has timed out");
}

TEST(Status, KeepsTheOperatingSystemsCodes) {
  const Status status = make_error(std::make_error_code(std::errc::address_in_use), "cannot listen on port 2020");
  EXPECT_EQ(status.code(), std::errc::address_in_use);
  EXPECT_NE(status.code(), Errc::kInvalidArgument);
}

static_assert(sizeof(Outcome) == 8 && std::is_trivially_copyable_v<Outcome>);
static_assert(!std::is_convertible_v<Outcome, bool> && !std::is_convertible_v<Outcome, std::error_code>);

TEST(Outcome, IsTrueForSuccess) {
  const Outcome done;
  EXPECT_TRUE(done);
  EXPECT_TRUE(done.ok());
  EXPECT_FALSE(done.code());
  EXPECT_EQ(done.message(), "ok");
  EXPECT_EQ(done, Errc::kOk);
  EXPECT_TRUE(Status(done).ok());
}

TEST(Outcome, HasACodeOfThisLibraryOrOfTheSystem) {
  const Outcome full = Errc::kSendQueueFull;
  EXPECT_FALSE(full);
  EXPECT_EQ(full, Errc::kSendQueueFull);
  EXPECT_NE(full, Errc::kReceiveQueueFull);
  EXPECT_EQ(full.code(), Errc::kSendQueueFull);
  EXPECT_EQ(full.message(), make_error_code(Errc::kSendQueueFull).message());
  const Outcome broken = Outcome::of_system(EIO);
  EXPECT_FALSE(broken);
  EXPECT_EQ(broken, std::errc::io_error);
  EXPECT_NE(broken, static_cast<Errc>(EIO)) << "the same number is another code in each of the two";
}

TEST(Outcome, ConvertsToAStatus) {
  const auto post = [](Outcome outcome) -> Status { return outcome; };
  EXPECT_TRUE(post({}).ok());
  EXPECT_EQ(post(Errc::kNotConnected).code(), Errc::kNotConnected);
  EXPECT_EQ(post(Errc::kNotConnected).message(), make_error_code(Errc::kNotConnected).message());
  EXPECT_EQ(post(Outcome::of_system(EIO)).code(), std::errc::io_error);
}

TEST(Result, HoldsAValue) {
  Result<int> result = 7;
  ASSERT_TRUE(result.has_value());
  EXPECT_EQ(*result, 7);
  EXPECT_TRUE(result.status().ok());
  EXPECT_FALSE(result.code());
}

TEST(Result, HasTheFunctionsOfAStatus) {
  const Result<int> good = 3;
  EXPECT_TRUE(good.ok());
  EXPECT_EQ(good.message(), "ok");
  const Result<int> bad = make_error(Errc::kTimeout, "");
  EXPECT_FALSE(bad.ok());
  EXPECT_EQ(bad.message(), "timed out");
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
