// sizes.h - sizes as people write them: "64", "4K", "1:8M", "1,64,4K".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "rdmacomm/result.h"

namespace rdmacomm::programs {

/// A number of bytes: digits, then K, M or G (either case) for powers of 1024, or nothing.
/// Returns  kInvalidArgument: not of that form, 0, or beyond 2^63; the context quotes `text`
[[nodiscard]] Result<std::uint64_t> parse_size(std::string_view text);

/// Several: a range LOW:HIGH, which stands for the powers of two from LOW to HIGH, or a list of sizes with commas
/// between them. Ascending, without repeats.
/// Returns  kInvalidArgument: as parse_size; a range without a power of two; more than kMaxSizes
[[nodiscard]] Result<std::vector<std::uint64_t>> parse_sizes(std::string_view text);
inline constexpr std::size_t kMaxSizes = 64;

/// "64", "4K", "1M": the shortest exact way of writing it.
[[nodiscard]] std::string size_text(std::uint64_t bytes);

}  // namespace rdmacomm::programs
