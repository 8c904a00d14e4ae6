#include "support/latency_histogram.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace rdmacomm::programs {

void LatencyHistogram::add(const LatencyHistogram& other) noexcept {
  for (std::size_t i = 0; i < kBuckets; ++i) counts_[i] += other.counts_[i];
  count_ += other.count_;
  sum_ += other.sum_;
  min_ = std::min(min_, other.min_);
  max_ = std::max(max_, other.max_);
}

Summary LatencyHistogram::summary() const {
  if (count_ == 0) return {};
  return {.count = static_cast<std::size_t>(count_),
          .min = static_cast<double>(min_),
          .p50 = percentile(50),
          .p99 = percentile(99),
          .p999 = percentile(99.9),
          .max = static_cast<double>(max_),
          .mean = static_cast<double>(sum_) / static_cast<double>(count_)};
}

double LatencyHistogram::middle_of(std::size_t bucket) noexcept {
  if (bucket < kPart) return static_cast<double>(bucket);
  const std::size_t shift = bucket / kPart - 1;
  const double width = std::ldexp(1.0, static_cast<int>(shift));
  return static_cast<double>(bucket % kPart + kPart) * width + (width - 1) / 2;
}

/// Uses the nearest rank, as programs::percentile().
double LatencyHistogram::percentile(double percent) const {
  const double rank = std::max(std::ceil(percent / 100 * static_cast<double>(count_) - 1e-6), 1.0);
  double seen = 0;
  for (std::size_t i = 0; i < kBuckets; ++i) {
    seen += static_cast<double>(counts_[i]);
    if (seen >= rank) return std::clamp(middle_of(i), static_cast<double>(min_), static_cast<double>(max_));
  }
  return static_cast<double>(max_);
}

void LatencyHistogram::encode(WireWriter& writer) const {
  const auto used = std::ranges::count_if(counts_, [](std::uint64_t count) { return count != 0; });
  writer.put(sum_);
  writer.put(min_);
  writer.put(max_);
  writer.put(static_cast<std::uint16_t>(used));
  for (std::size_t i = 0; i < kBuckets; ++i) {
    if (counts_[i] == 0) continue;
    writer.put(static_cast<std::uint16_t>(i));
    writer.put(counts_[i]);
  }
}

Result<LatencyHistogram> LatencyHistogram::decode(WireReader& reader) {
  LatencyHistogram histogram;
  histogram.sum_ = reader.get<std::uint64_t>();
  histogram.min_ = reader.get<std::uint64_t>();
  histogram.max_ = reader.get<std::uint64_t>();
  const auto used = reader.get<std::uint16_t>();
  for (std::uint16_t i = 0; i < used && reader.ok(); ++i) {
    const auto bucket = reader.get<std::uint16_t>();
    const auto count = reader.get<std::uint64_t>();
    if (bucket >= kBuckets) return make_error(Errc::kBadMessage, "a histogram has a bucket number that is too large");
    histogram.counts_[bucket] += count;
    histogram.count_ += count;
  }
  if (!reader.ok()) return make_error(Errc::kBadMessage, "a histogram ends too early");
  if (histogram.count_ > 0 && histogram.min_ > histogram.max_) {
    return make_error(Errc::kBadMessage, "the smallest sample of a histogram is larger than its largest sample");
  }
  return histogram;
}

}  // namespace rdmacomm::programs
