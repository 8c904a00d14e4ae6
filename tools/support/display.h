// display.h - how much room text takes on a terminal.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace rdmacomm::programs {

/// Columns that `text` takes: a Chinese character two, a combining accent none. Bytes that are no printable character
/// count as one each.
[[nodiscard]] std::size_t display_width(std::string_view text);

/// `text`, if it takes no more than `columns`, or else its first characters and "..." (of less than 3 columns: its
/// first characters).
[[nodiscard]] std::string fitted(std::string_view text, std::size_t columns);

/// Columns of the terminal at `fd` now. 0: it is none, or does not say.
[[nodiscard]] std::size_t terminal_columns(int fd);

}  // namespace rdmacomm::programs
