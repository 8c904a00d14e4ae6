// statistics.h - exact statistics of a bounded number of samples.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace rdmacomm::programs {

/// A summary of samples, in their unit. All zero if there are no samples.
struct Summary {
  std::size_t count = 0;
  double min = 0;
  double p50 = 0;  ///< percentiles by nearest rank: actual samples, never interpolated
  double p99 = 0;
  double p999 = 0;
  double max = 0;
  double mean = 0;

  /// Whether the samples suffice for a percentile that is not simply the largest sample.
  [[nodiscard]] bool has_p99() const noexcept { return count >= 100; }
  [[nodiscard]] bool has_p999() const noexcept { return count >= 1000; }
  /// The same in another unit.
  [[nodiscard]] Summary scaled(double factor) const;
};

/// Samples in the order of their arrival, at most `capacity`.
/// Threads: one at a time.
class Samples {
 public:
  /// Allocates and touches the memory, so that add() neither allocates nor causes a page fault.
  explicit Samples(std::size_t capacity);

  /// Records one sample. Requires !full(). Cost: one store.
  void add(std::uint64_t sample) noexcept { values_[count_++] = sample; }
  [[nodiscard]] bool full() const noexcept { return count_ == values_.size(); }
  [[nodiscard]] std::size_t count() const noexcept { return count_; }
  void clear() noexcept { count_ = 0; }
  /// Adds the samples of `other` until this is full.
  void append(const Samples& other);

  /// Sorts the samples and summarizes them.
  [[nodiscard]] Summary summarize();

 private:
  std::vector<std::uint64_t> values_;
  std::size_t count_ = 0;
};

/// The sample at the nearest rank: the smallest one that is not exceeded by at least `percent` % of all samples.
/// sorted   ascending, not empty;  percent  0..100
[[nodiscard]] std::uint64_t percentile(std::span<const std::uint64_t> sorted, double percent);

/// The middle value, or the mean of the two middle values; 0 if `values` is empty.
[[nodiscard]] double median(std::vector<double> values);

}  // namespace rdmacomm::programs
