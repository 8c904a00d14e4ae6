// statistics.h - exact figures about a bounded number of samples.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace rdmacomm::programs {

/// What is said about a set of samples. In the samples' unit; all zero where there were none.
struct Summary {
  std::size_t count = 0;
  double min = 0;
  double p50 = 0;  ///< percentiles by nearest rank: samples that were really seen, never interpolated
  double p99 = 0;
  double p999 = 0;
  double max = 0;
  double mean = 0;

  /// Whether there were so many samples that the percentile is not just the largest of them.
  [[nodiscard]] bool has_p99() const noexcept { return count >= 100; }
  [[nodiscard]] bool has_p999() const noexcept { return count >= 1000; }
  /// The same in another unit.
  [[nodiscard]] Summary scaled(double factor) const;
};

/// Samples in the order of their arrival, at most as many as room was made for.
/// Threads: one at a time.
class Samples {
 public:
  /// Makes room and touches it, so that add() neither allocates nor faults a page in.
  explicit Samples(std::size_t capacity);

  /// Records one sample. Only where !full(). Cost: one store.
  void add(std::uint64_t sample) noexcept { values_[count_++] = sample; }
  [[nodiscard]] bool full() const noexcept { return count_ == values_.size(); }
  [[nodiscard]] std::size_t count() const noexcept { return count_; }
  void clear() noexcept { count_ = 0; }
  /// Adds those of `other`, as far as there is room.
  void append(const Samples& other);

  /// Sorts the samples and summarizes them.
  [[nodiscard]] Summary summarize();

 private:
  std::vector<std::uint64_t> values_;
  std::size_t count_ = 0;
};

/// The sample at the nearest rank: the smallest one that at least `percent` % of all do not exceed.
/// sorted   ascending, not empty;  percent  0..100
[[nodiscard]] std::uint64_t percentile(std::span<const std::uint64_t> sorted, double percent);

/// The middle one; the mean of the two middle ones; 0 of none.
[[nodiscard]] double median(std::vector<double> values);

}  // namespace rdmacomm::programs
