// Secrets that connection management has announced.
#include "softdev/tcp/expected_secrets.h"

#include <gtest/gtest.h>

namespace rdmacomm::softdev::test {
namespace {

constexpr ibv_gid kHere{};
constexpr ibv_gid kThere{{1}};

TEST(ExpectedSecrets, AreTakenOnce) {
  expect_secret(kHere, 5, {1});
  EXPECT_EQ(take_expected_secret(kThere, 5), std::nullopt);
  EXPECT_EQ(take_expected_secret(kHere, 6), std::nullopt);
  EXPECT_EQ(take_expected_secret(kHere, 5), TcpSecret{1});
  EXPECT_EQ(take_expected_secret(kHere, 5), std::nullopt);
}

TEST(ExpectedSecrets, TheLastOneOfAQueuePairCounts) {
  expect_secret(kHere, 5, {1});
  expect_secret(kHere, 5, {2});
  EXPECT_EQ(take_expected_secret(kHere, 5), TcpSecret{2});
  EXPECT_EQ(take_expected_secret(kHere, 5), std::nullopt);
}

TEST(ExpectedSecrets, AreBounded) {
  for (std::uint32_t qpn = 1; qpn <= 2000; ++qpn) expect_secret(kHere, qpn, {1});
  EXPECT_EQ(take_expected_secret(kHere, 1), std::nullopt);
  int left = 0;
  for (std::uint32_t qpn = 1; qpn <= 2000; ++qpn) left += take_expected_secret(kHere, qpn) ? 1 : 0;
  EXPECT_EQ(left, 1024);
}

}  // namespace
}  // namespace rdmacomm::softdev::test
