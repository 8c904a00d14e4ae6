#include "support/table.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

namespace rdmacomm::programs {

namespace {

std::size_t width_of(const Column& column) {
  return std::max(column.width, column.header.size());
}

}  // namespace

Table::Table(std::vector<Column> columns, std::size_t width)
    : columns_(std::move(columns)), shown_(columns_.size(), true) {
  const auto needed = [this] {
    std::size_t sum = 0;
    for (std::size_t i = 0; i < columns_.size(); ++i) sum += shown_[i] ? width_of(columns_[i]) + gap_ : 0;
    return sum - std::min(sum, gap_);
  };
  if (needed() > width) gap_ = 1;
  while (needed() > width) {
    std::size_t last = columns_.size();
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      const bool goes_first = last == columns_.size() || columns_[i].dispensable > columns_[last].dispensable;
      if (shown_[i] && columns_[i].dispensable > 0 && goes_first) last = i;
    }
    if (last == columns_.size()) return;
    shown_[last] = false;
  }
}

void Table::print_header(std::ostream& out) const {
  std::vector<std::string> headers;
  for (const Column& column : columns_) headers.push_back(column.header);
  print_row(out, headers);
}

void Table::print_row(std::ostream& out, const std::vector<std::string>& cells) const {
  std::string line;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    if (!shown_[i]) continue;
    const std::string cell = i < cells.size() ? cells[i] : std::string();
    const std::size_t width = width_of(columns_[i]);
    const std::string padding(width - std::min(width, cell.size()), ' ');
    if (!line.empty()) line.append(gap_, ' ');
    line += columns_[i].left ? cell + padding : padding + cell;
  }
  line.erase(line.find_last_not_of(' ') + 1);
  out << line << std::endl;  // NOLINT(performance-avoid-endl): a row is shown when it is known
}

std::string number_text(double value) {
  std::array<char, 48> text{};
  const double size = std::fabs(value);
  if (size > 0 && size < 0.001) {
    std::snprintf(text.data(), text.size(), "%.1e", value);
    std::string short_text = text.data();
    const auto exponent = short_text.find("e-0");
    if (exponent != std::string::npos) short_text.erase(exponent + 2, 1);
    return short_text;
  }
  const int decimals = size == 0 || size >= 1000 ? 0 : size >= 100 ? 1 : size >= 10 ? 2 : 3;
  std::snprintf(text.data(), text.size(), "%.*f", decimals, value);
  return text.data();
}

std::string ratio_text(double value, double base) {
  if (!(base > 0)) return "-";
  std::array<char, 48> text{};
  std::snprintf(text.data(), text.size(), "%.2fx", value / base);
  return text.data();
}

}  // namespace rdmacomm::programs
