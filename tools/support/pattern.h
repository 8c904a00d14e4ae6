// pattern.h - test payloads that differ from each other, and a check that one arrived unchanged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace rdmacomm::programs {

/// Fills `bytes` with the pattern of `seed`. The patterns of two seeds, or of two offsets, differ after a few bytes.
/// The same on every machine.
void fill_pattern(std::span<std::byte> bytes, std::uint64_t seed);
/// The offset of the first byte that differs from fill_pattern(bytes, seed); bytes.size() if none differs.
[[nodiscard]] std::size_t first_difference(std::span<const std::byte> bytes, std::uint64_t seed);
/// The byte at `offset` of the pattern.
[[nodiscard]] std::byte pattern_byte(std::size_t offset, std::uint64_t seed);
/// "byte 5 of 64 is 0x12 and should be 0x34": describes the byte at `at`, which differs.
[[nodiscard]] std::string difference_text(std::span<const std::byte> bytes, std::size_t at, std::uint64_t seed);

}  // namespace rdmacomm::programs
