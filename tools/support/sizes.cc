#include "support/sizes.h"

#include <algorithm>
#include <bit>
#include <charconv>

#include "base/printable.h"

namespace rdmacomm::programs {
namespace {

std::string quoted(std::string_view text) {
  return '"' + printable(text, 64) + '"';
}

Error not_a_size(std::string_view text, const std::string& why) {
  return make_error(Errc::kInvalidArgument, quoted(text) + " is not a size: " + why);
}

/// The shift for K, M or G; -1 for any other letter.
int shift_of(char suffix) {
  switch (suffix) {
    case 'k':
    case 'K': return 10;
    case 'm':
    case 'M': return 20;
    case 'g':
    case 'G': return 30;
    default: return -1;
  }
}

Result<std::vector<std::uint64_t>> parse_range(std::string_view text, std::size_t colon) {
  const auto low = parse_size(text.substr(0, colon));
  if (!low) return low.error();
  const auto high = parse_size(text.substr(colon + 1));
  if (!high) return high.error();
  std::vector<std::uint64_t> sizes;
  for (std::uint64_t size = std::bit_ceil(*low); size <= *high; size *= 2) sizes.push_back(size);
  if (sizes.empty()) {
    return make_error(Errc::kInvalidArgument,
                      quoted(text) + " contains no power of two; write LOW:HIGH, for example 1:8M");
  }
  return sizes;
}

}  // namespace

Result<std::uint64_t> parse_size(std::string_view text) {
  constexpr std::uint64_t kMax = std::uint64_t{1} << 62;
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc::result_out_of_range) return not_a_size(text, "it is too large");
  int shift = 0;
  const std::string_view suffix = text.substr(static_cast<std::size_t>(end - text.data()));
  if (suffix.size() == 1) shift = shift_of(suffix.front());
  if (error != std::errc() || suffix.size() > 1 || shift < 0) {
    return not_a_size(text, "write a number of bytes, optionally followed by K, M or G for powers of 1024");
  }
  if (number == 0) return not_a_size(text, "the smallest size is 1 byte");
  if (number > (kMax >> shift)) return not_a_size(text, "it is too large");
  return number << shift;
}

Result<std::vector<std::uint64_t>> parse_sizes(std::string_view text) {
  if (const auto colon = text.find(':'); colon != std::string_view::npos) return parse_range(text, colon);
  std::vector<std::uint64_t> sizes;
  for (std::string_view rest = text;;) {
    const auto comma = rest.find(',');
    const auto size = parse_size(rest.substr(0, comma));
    if (!size) return size.error();
    sizes.push_back(*size);
    if (comma == std::string_view::npos) break;
    rest.remove_prefix(comma + 1);
  }
  std::ranges::sort(sizes);
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());  // clang 14 does not compile std::ranges::unique
  if (sizes.size() > kMaxSizes) {
    return make_error(Errc::kInvalidArgument, std::to_string(sizes.size()) + " sizes are too many: at most " +
                                                  std::to_string(kMaxSizes) + " in one run");
  }
  return sizes;
}

std::string size_text(std::uint64_t bytes) {
  constexpr std::string_view kSuffixes = "KMG";
  if (bytes == 0) return "0";
  std::string suffix;
  for (std::size_t i = 0; i < kSuffixes.size() && bytes % 1024 == 0; ++i) {
    bytes /= 1024;
    suffix = kSuffixes[i];
  }
  return std::to_string(bytes) + suffix;
}

}  // namespace rdmacomm::programs
