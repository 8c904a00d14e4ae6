#include "support/statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace rdmacomm::programs {

Summary Summary::scaled(double factor) const {
  return {.count = count,
          .min = min * factor,
          .p50 = p50 * factor,
          .p99 = p99 * factor,
          .p999 = p999 * factor,
          .max = max * factor,
          .mean = mean * factor};
}

Samples::Samples(std::size_t capacity) : values_(capacity) {}

void Samples::append(const Samples& other) {
  for (std::size_t i = 0; i < other.count_ && !full(); ++i) add(other.values_[i]);
}

Summary Samples::summarize() {
  const std::span<std::uint64_t> taken(values_.data(), count_);
  if (taken.empty()) return {};
  std::ranges::sort(taken);
  const double sum = std::accumulate(taken.begin(), taken.end(), 0.0);
  return {.count = count_,
          .min = static_cast<double>(taken.front()),
          .p50 = static_cast<double>(percentile(taken, 50)),
          .p99 = static_cast<double>(percentile(taken, 99)),
          .p999 = static_cast<double>(percentile(taken, 99.9)),
          .max = static_cast<double>(taken.back()),
          .mean = sum / static_cast<double>(count_)};
}

std::uint64_t percentile(std::span<const std::uint64_t> sorted, double percent) {
  // Without the small subtraction, 99.9 % of 1000, which is 999.0000000000001 in binary, would give rank 1000.
  const double rank = std::ceil(percent / 100 * static_cast<double>(sorted.size()) - 1e-6);
  const auto index = static_cast<std::size_t>(std::max(rank, 1.0)) - 1;
  return sorted[std::min(index, sorted.size() - 1)];
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

}  // namespace rdmacomm::programs
