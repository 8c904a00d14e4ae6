#include "support/display.h"

#include <locale.h>
#include <sys/ioctl.h>
#include <wchar.h>

#include <algorithm>

#include "base/printable.h"

namespace rdmacomm::programs {
namespace {

constexpr std::string_view kLeftOut = "...";

/// The widths of UTF-8 characters, independent of the locale of the process. A resource of the thread that creates it.
class Widths {
 public:
  Widths() : locale_(::newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr)) {
    if (locale_ != nullptr) before_ = ::uselocale(locale_);
  }
  Widths(const Widths&) = delete;
  Widths& operator=(const Widths&) = delete;
  ~Widths() {
    if (locale_ == nullptr) return;
    ::uselocale(before_);
    ::freelocale(locale_);
  }

  /// character  one character, in UTF-8
  [[nodiscard]] std::size_t of(std::string_view character) const {
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(character[i]); };
    if (character.size() == 1) return 1;
    auto code = static_cast<wchar_t>(byte(0) & (0x7fU >> character.size()));
    for (std::size_t i = 1; i < character.size(); ++i) code = code << 6 | (byte(i) & 0x3f);
    constexpr wchar_t kFirstWide = 0x1100;
    if (locale_ == nullptr) return code < kFirstWide ? 1 : 2;
    return static_cast<std::size_t>(std::max(0, ::wcwidth(code)));
  }

 private:
  locale_t locale_;
  locale_t before_ = nullptr;
};

/// How many bytes of `text` fit into `columns`, and whether that is all of `text`.
std::size_t bytes_within(std::string_view text, std::size_t columns, const Widths& widths) {
  std::size_t bytes = 0;
  for (std::size_t used = 0; bytes < text.size();) {
    const std::size_t length = std::max<std::size_t>(printable_character(text.substr(bytes)), 1);
    used += widths.of(text.substr(bytes, length));
    if (used > columns) break;
    bytes += length;
  }
  return bytes;
}

}  // namespace

std::size_t display_width(std::string_view text) {
  const Widths widths;
  std::size_t columns = 0;
  while (!text.empty()) {
    const std::size_t length = std::max<std::size_t>(printable_character(text), 1);
    columns += widths.of(text.substr(0, length));
    text.remove_prefix(length);
  }
  return columns;
}

std::string fitted(std::string_view text, std::size_t columns) {
  const Widths widths;
  if (bytes_within(text, columns, widths) == text.size()) return std::string(text);
  if (columns < kLeftOut.size()) return std::string(text.substr(0, bytes_within(text, columns, widths)));
  return std::string(text.substr(0, bytes_within(text, columns - kLeftOut.size(), widths))).append(kLeftOut);
}

std::size_t terminal_columns(int fd) {
  winsize size{};
  return ::ioctl(fd, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

}  // namespace rdmacomm::programs
