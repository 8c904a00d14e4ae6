// latency_histogram.h - statistics of any number of samples, in bounded memory. Histograms can be added.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/wire.h"
#include "rdmacomm/result.h"
#include "support/statistics.h"

namespace rdmacomm::programs {

/// Counts samples in buckets, 32 for each power of two: percentiles are exact to within 1/32; minimum, maximum and mean
/// are exact. For few samples use Samples, which keeps each of them. A value. Threads: one at a time.
class LatencyHistogram {
 public:
  /// Cost: a few instructions.
  void add(std::uint64_t sample) noexcept {
    ++counts_[bucket_of(sample)];
    ++count_;
    sum_ += sample;
    if (sample < min_) min_ = sample;
    if (sample > max_) max_ = sample;
  }
  /// Adds the samples of `other`.
  void add(const LatencyHistogram& other) noexcept;
  [[nodiscard]] std::uint64_t count() const noexcept { return count_; }
  /// In the samples' unit.
  [[nodiscard]] Summary summary() const;

  /// Appends the wire form. Its length depends on the number of buckets in use.
  void encode(WireWriter& writer) const;
  /// kBadMessage: truncated, or inconsistent counts.
  [[nodiscard]] static Result<LatencyHistogram> decode(WireReader& reader);

 private:
  static constexpr unsigned kBits = 5;
  static constexpr std::size_t kPart = std::size_t{1} << kBits;
  static constexpr std::size_t kBuckets = (64 - kBits + 1) * kPart;

  [[nodiscard]] static std::size_t bucket_of(std::uint64_t sample) noexcept {
    if (sample < kPart) return sample;
    const unsigned shift = static_cast<unsigned>(std::bit_width(sample)) - kBits - 1;
    return shift * kPart + (sample >> shift);
  }
  [[nodiscard]] static double middle_of(std::size_t bucket) noexcept;
  [[nodiscard]] double percentile(double percent) const;

  std::vector<std::uint64_t> counts_ = std::vector<std::uint64_t>(kBuckets);
  std::uint64_t count_ = 0;
  std::uint64_t sum_ = 0;
  std::uint64_t min_ = ~std::uint64_t{0};
  std::uint64_t max_ = 0;
};

}  // namespace rdmacomm::programs
