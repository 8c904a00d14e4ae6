// quantile.h - the middle of measured values, or another part of them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

/// The value that `part` of all values do not exceed: 0.5 is the median.
/// values  not empty;  part  0..1
inline double quantile(std::vector<double> values, double part) {
  const auto place = values.begin() + static_cast<std::ptrdiff_t>(part * static_cast<double>(values.size() - 1));
  std::ranges::nth_element(values, place);
  return *place;
}
