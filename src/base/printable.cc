#include "base/printable.h"

#include <algorithm>
#include <cstdint>

namespace rdmacomm {
namespace {

constexpr std::string_view kLeftOut = "...";

/// Whether `c` is the first byte of a character.
bool is_first(char c) noexcept {
  return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
}

/// Invisible characters that change how the text around them looks: they turn its direction or end a line. (Unicode 15:
/// bidirectional controls, line and paragraph separators, annotations, tags.)
bool misleads(std::uint32_t character) noexcept {
  struct Range {
    std::uint32_t first, last;
  };
  constexpr Range kRanges[] = {{0x061c, 0x061c}, {0x200e, 0x200f}, {0x2028, 0x202e},
                               {0x2066, 0x206f}, {0xfff9, 0xfffb}, {0xe0000, 0xe007f}};
  return std::ranges::any_of(
      kRanges, [character](const Range& range) { return range.first <= character && character <= range.last; });
}

}  // namespace

std::size_t printable_character(std::string_view text) noexcept {
  const auto at = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  if (at(0) < 0x80) return at(0) >= ' ' && at(0) != 0x7f ? 1 : 0;
  const std::size_t length = at(0) >= 0xc2 && at(0) < 0xe0   ? 2
                             : at(0) >= 0xe0 && at(0) < 0xf0 ? 3
                             : at(0) >= 0xf0 && at(0) < 0xf5 ? 4
                                                             : 0;
  if (length == 0 || length > text.size()) return 0;
  std::uint32_t character = at(0) & (0x7fU >> length);
  for (std::size_t i = 1; i < length; ++i) {
    if (is_first(text[i])) return 0;
    character = character << 6 | (at(i) & 0x3fU);
  }
  const std::uint32_t least = length == 2 ? 0xa0 : length == 3 ? 0x800 : 0x10000;  // below 0xa0 are control characters
  const bool surrogate = character >= 0xd800 && character < 0xe000;
  return character < least || surrogate || character > 0x10ffff || misleads(character) ? 0 : length;
}

std::string printable(std::string_view text, std::size_t max_bytes) {
  std::string clean;
  while (!text.empty()) {
    const std::size_t length = printable_character(text);
    clean += length == 0 ? "?" : text.substr(0, length);
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  if (clean.size() <= max_bytes) return clean;
  const std::size_t kept = max_bytes - kLeftOut.size();
  std::size_t head = kept / 2;
  std::size_t tail = clean.size() - (kept - head);
  while (head > 0 && !is_first(clean[head])) --head;
  while (tail < clean.size() && !is_first(clean[tail])) ++tail;
  return clean.replace(head, tail - head, kLeftOut);
}

}  // namespace rdmacomm
