// display.h - the width of text on a terminal.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace rdmacomm::programs {

/// The columns that `text` takes: two for a Chinese character, none for a combining accent. A byte that belongs to no
/// printable character counts as one.
[[nodiscard]] std::size_t display_width(std::string_view text);

/// `text` if it fits into `columns`, else its first characters and "..." (without "..." if `columns` is less than 3).
[[nodiscard]] std::string fitted(std::string_view text, std::size_t columns);

/// The current columns of the terminal at `fd`. 0: it is no terminal, or the number is unknown.
[[nodiscard]] std::size_t terminal_columns(int fd);

}  // namespace rdmacomm::programs
