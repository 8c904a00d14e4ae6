#include "support/table.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

namespace rdmacomm::programs {

void Table::print_header(std::ostream& out) const {
  std::vector<std::string> headers;
  for (const Column& column : columns_) headers.push_back(column.header);
  print_row(out, headers);
}

void Table::print_row(std::ostream& out, const std::vector<std::string>& cells) const {
  std::string line;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    const std::string cell = i < cells.size() ? cells[i] : std::string();
    const std::size_t width = std::max(columns_[i].width, columns_[i].header.size());
    const std::string padding(width - std::min(width, cell.size()), ' ');
    if (i > 0) line += "  ";
    line += columns_[i].left ? cell + padding : padding + cell;
  }
  line.erase(line.find_last_not_of(' ') + 1);
  out << line << std::endl;  // NOLINT(performance-avoid-endl): a row is shown when it is known
}

std::string number_text(double value) {
  std::array<char, 48> text{};
  const double size = std::fabs(value);
  const int decimals = size == 0 || size >= 1000 ? 0 : size >= 100 ? 1 : size >= 10 ? 2 : size >= 0.001 ? 3 : 6;
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
