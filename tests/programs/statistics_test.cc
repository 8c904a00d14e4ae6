#include "support/statistics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace rdmacomm::programs {
namespace {

TEST(Percentile, IsTheNearestRank) {
  std::vector<std::uint64_t> values(1000);
  std::iota(values.begin(), values.end(), 1);  // 1..1000: each value equals its rank
  EXPECT_EQ(percentile(values, 0), 1U);
  EXPECT_EQ(percentile(values, 50), 500U);
  EXPECT_EQ(percentile(values, 99), 990U);
  EXPECT_EQ(percentile(values, 99.9), 999U);
  EXPECT_EQ(percentile(values, 100), 1000U);
}

TEST(Percentile, OfFewSamplesIsOneOfThem) {
  const std::vector<std::uint64_t> one = {7};
  for (const double percent : {0.0, 50.0, 99.9, 100.0}) EXPECT_EQ(percentile(one, percent), 7U);
  const std::vector<std::uint64_t> two = {3, 9};
  EXPECT_EQ(percentile(two, 50), 3U);
  EXPECT_EQ(percentile(two, 51), 9U);
}

TEST(Samples, AreSummarizedExactlyInAnyOrder) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::vector<std::uint64_t> values(10'000);
  std::iota(values.begin(), values.end(), 1);
  std::ranges::shuffle(values, std::mt19937(seed));
  Samples samples(values.size());
  for (const std::uint64_t value : values) samples.add(value);
  EXPECT_TRUE(samples.full());
  const Summary summary = samples.summarize();
  EXPECT_EQ(summary.count, 10'000U);
  EXPECT_EQ(summary.min, 1);
  EXPECT_EQ(summary.p50, 5000);
  EXPECT_EQ(summary.p99, 9900);
  EXPECT_EQ(summary.p999, 9990);
  EXPECT_EQ(summary.max, 10'000);
  EXPECT_DOUBLE_EQ(summary.mean, 5000.5);
}

TEST(Samples, CanBeUsedAgain) {
  Samples samples(2);
  EXPECT_EQ(samples.summarize().count, 0U);
  samples.add(5);
  samples.clear();
  samples.add(6);
  EXPECT_FALSE(samples.full());
  EXPECT_EQ(samples.summarize().max, 6);
  EXPECT_EQ(samples.summarize().scaled(0.5).max, 3);
}

TEST(Median, OfOddEvenAndNone) {
  EXPECT_EQ(median({}), 0);
  EXPECT_EQ(median({3}), 3);
  EXPECT_EQ(median({9, 1, 5}), 5);
  EXPECT_EQ(median({4, 1, 3, 2}), 2.5);
}

}  // namespace
}  // namespace rdmacomm::programs
