// printable.h - makes text from a peer, or a name, safe to print.
// Layer: base.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace rdmacomm {

/// The number of bytes of the first character of `text` in UTF-8. `text` is not empty. 0: this is not a character, or
/// it is one that controls a terminal, turns the direction of the text around it, or ends a line.
[[nodiscard]] std::size_t printable_character(std::string_view text) noexcept;

/// `text` with '?' for each byte that belongs to no printable character, so that it stays one line and cannot control a
/// terminal. If it is longer than `max_bytes` (3 or more), its middle is replaced by "...", because messages have their
/// subject first and the reason last.
[[nodiscard]] std::string printable(std::string_view text, std::size_t max_bytes);

}  // namespace rdmacomm
