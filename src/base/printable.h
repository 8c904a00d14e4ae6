// printable.h - text of a peer's, or a name, on its way to people.
// Layer: base.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace rdmacomm {

/// How many bytes the first character of `text`, which is not empty, has in UTF-8. 0: that is no character, or one that
/// steers a terminal, turns the direction of the text around it, or ends a line.
[[nodiscard]] std::size_t printable_character(std::string_view text) noexcept;

/// `text` with '?' for each byte that belongs to no printable character, so that it stays one line and does nothing to
/// a terminal. Of more than `max_bytes` (3 or more) the middle is left out, and "..." stands for it: what something is
/// about is said first, and why last.
[[nodiscard]] std::string printable(std::string_view text, std::size_t max_bytes);

}  // namespace rdmacomm
