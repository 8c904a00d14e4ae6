// table.h - aligned columns, printed row by row.
#pragma once

#include <cstddef>
#include <ostream>
#include <string>
#include <vector>

namespace rdmacomm::programs {

/// One column. A value.
struct Column {
  std::string header;
  std::size_t width = 0;  ///< characters at least; the header's length where that is more
  bool left = false;      ///< text is put to the left, numbers to the right
  /// 0: it is always shown. Where there is not room for all columns, the highest ones are left out first.
  int dispensable = 0;
};

/// Prints rows as they come, so that a long run shows its progress.
class Table {
 public:
  /// width  characters that a line has room for: columns come closer to each other, and dispensable ones are left out,
  ///        where there is not enough of it
  explicit Table(std::vector<Column> columns, std::size_t width = SIZE_MAX);

  void print_header(std::ostream& out) const;
  /// cells  as many as there are columns; missing ones are blank
  void print_row(std::ostream& out, const std::vector<std::string>& cells) const;

 private:
  std::vector<Column> columns_;
  std::vector<bool> shown_;
  std::size_t gap_ = 2;  // between columns
};

/// A number with two to four significant digits, for tables: "2.8e-4", "0.123", "12.30", "1234". Of 1e-9 to 999999 none
/// has more than 6 characters.
[[nodiscard]] std::string number_text(double value);
/// "2.31x", or "-" where there is nothing to compare with.
[[nodiscard]] std::string ratio_text(double value, double base);

}  // namespace rdmacomm::programs
