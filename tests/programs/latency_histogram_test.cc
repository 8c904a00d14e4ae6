#include "support/latency_histogram.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace rdmacomm::programs {
namespace {

using testing::HasSubstr;

Result<LatencyHistogram> through_wire(const LatencyHistogram& histogram) {
  WireWriter writer;
  histogram.encode(writer);
  WireReader reader(writer.bytes());
  return LatencyHistogram::decode(reader);
}

void expect_equal(const Summary& a, const Summary& b) {
  EXPECT_EQ(a.count, b.count);
  EXPECT_EQ(a.min, b.min);
  EXPECT_EQ(a.p50, b.p50);
  EXPECT_EQ(a.p99, b.p99);
  EXPECT_EQ(a.p999, b.p999);
  EXPECT_EQ(a.max, b.max);
  EXPECT_EQ(a.mean, b.mean);
}

TEST(LatencyHistogram, IsEmptyWithoutSamples) {
  const Summary summary = LatencyHistogram().summary();
  EXPECT_EQ(summary.count, 0U);
  EXPECT_EQ(summary.min, 0);
  EXPECT_EQ(summary.max, 0);
}

TEST(LatencyHistogram, IsExactForSmallSamples) {
  LatencyHistogram histogram;
  for (std::uint64_t i = 1; i <= 31; ++i) histogram.add(i);
  const Summary summary = histogram.summary();
  EXPECT_EQ(summary.count, 31U);
  EXPECT_EQ(summary.min, 1);
  EXPECT_EQ(summary.p50, 16);
  EXPECT_EQ(summary.p99, 31);
  EXPECT_EQ(summary.max, 31);
  EXPECT_EQ(summary.mean, 16);
}

TEST(LatencyHistogram, IsRightToWithinItsBuckets) {
  std::mt19937_64 random(20240607);
  LatencyHistogram histogram;
  Samples samples(20000);
  while (!samples.full()) {
    const std::uint64_t sample = random() >> (random() % 63);  // of every magnitude
    histogram.add(sample);
    samples.add(sample);
  }
  const Summary exact = samples.summarize();
  const Summary summary = histogram.summary();
  EXPECT_EQ(summary.count, exact.count);
  EXPECT_EQ(summary.min, exact.min);
  EXPECT_EQ(summary.max, exact.max);
  EXPECT_NEAR(summary.p50, exact.p50, exact.p50 / 32);
  EXPECT_NEAR(summary.p99, exact.p99, exact.p99 / 32);
  EXPECT_NEAR(summary.p999, exact.p999, exact.p999 / 32);
}

TEST(LatencyHistogram, TakesTheLargestPossibleSample) {
  LatencyHistogram histogram;
  histogram.add(~std::uint64_t{0});
  EXPECT_EQ(histogram.summary().p50, static_cast<double>(~std::uint64_t{0}));
}

TEST(LatencyHistogram, AddsUp) {
  LatencyHistogram one;
  LatencyHistogram other;
  LatencyHistogram both;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    (i % 3 == 0 ? one : other).add(i * i);
    both.add(i * i);
  }
  one.add(other);
  expect_equal(one.summary(), both.summary());
}

TEST(LatencyHistogram, IsDecodedAsItWasEncoded) {
  LatencyHistogram histogram;
  for (std::uint64_t i = 0; i < 5000; ++i) histogram.add(i * 977);
  const auto arrived = through_wire(histogram);
  ASSERT_TRUE(arrived.has_value()) << arrived.error().message();
  expect_equal(arrived->summary(), histogram.summary());
  EXPECT_TRUE(through_wire(LatencyHistogram()).has_value());
}

TEST(LatencyHistogram, RefusesTruncatedAndInvalidData) {
  LatencyHistogram histogram;
  histogram.add(5);
  WireWriter writer;
  histogram.encode(writer);
  for (std::size_t length = 0; length < writer.bytes().size(); ++length) {
    WireReader reader(writer.bytes().first(length));
    EXPECT_EQ(LatencyHistogram::decode(reader).code(), Errc::kBadMessage) << length;
  }
  std::vector<std::byte> spoiled(writer.bytes().begin(), writer.bytes().end());
  spoiled[26] = spoiled[27] = std::byte{0xff};  // the number of the only bucket
  WireReader reader(spoiled);
  EXPECT_THAT(LatencyHistogram::decode(reader).error().context, HasSubstr("bucket number that is too large"));
}

}  // namespace
}  // namespace rdmacomm::programs
