// sizes.h - parses sizes as users write them: "64", "4K", "1:8M", "1,64,4K".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "rdmacomm/result.h"

namespace rdmacomm::programs {

/// A number of bytes: digits, then K, M or G (either case) for powers of 1024, or nothing.
/// Returns  kInvalidArgument: wrong syntax, 0, or more than 2^62; the context quotes `text`
[[nodiscard]] Result<std::uint64_t> parse_size(std::string_view text);

/// Several sizes: a range LOW:HIGH, which means the powers of two from LOW to HIGH, or a list with commas. Ascending,
/// without repeats.
/// Returns  kInvalidArgument: as parse_size; a range without a power of two; more than kMaxSizes
[[nodiscard]] Result<std::vector<std::uint64_t>> parse_sizes(std::string_view text);
inline constexpr std::size_t kMaxSizes = 64;

/// "64", "4K", "1M": the shortest exact form.
[[nodiscard]] std::string size_text(std::uint64_t bytes);

}  // namespace rdmacomm::programs
