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
  std::size_t width = 0;  ///< in characters, at least; the header's length if that is more
  bool left = false;      ///< text is aligned left, numbers right
  /// 0: always shown. If the columns do not fit, columns with the highest values are left out first.
  int dispensable = 0;
};

/// Prints each row at once, so that a long run shows its progress.
class Table {
 public:
  /// width  characters in a line; if the columns do not fit, their gaps shrink and dispensable columns are left out
  explicit Table(std::vector<Column> columns, std::size_t width = SIZE_MAX);

  void print_header(std::ostream& out) const;
  /// cells  one for each column; missing ones are blank
  void print_row(std::ostream& out, const std::vector<std::string>& cells) const;

 private:
  std::vector<Column> columns_;
  std::vector<bool> shown_;
  std::size_t gap_ = 2;  // between columns
};

/// A number with two to four significant digits, for tables: "2.8e-4", "0.123", "12.30", "1234". At most 6 characters
/// for 1e-9 to 999999.
[[nodiscard]] std::string number_text(double value);
/// "2.31x", or "-" if `base` is not usable.
[[nodiscard]] std::string ratio_text(double value, double base);

}  // namespace rdmacomm::programs
