// pattern.h - payloads that can be told apart, and telling whether one arrived as it was sent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace rdmacomm::programs {

/// Fills `bytes` with what belongs to `seed`: no two seeds and no two places look alike for long. The same on every
/// machine.
void fill_pattern(std::span<std::byte> bytes, std::uint64_t seed);
/// The offset of the first byte that is not as fill_pattern(bytes, seed) leaves it; bytes.size() where all are.
[[nodiscard]] std::size_t first_difference(std::span<const std::byte> bytes, std::uint64_t seed);
/// The byte at `offset` of the pattern.
[[nodiscard]] std::byte pattern_byte(std::size_t offset, std::uint64_t seed);
/// "byte 5 of 64 is 0x12 and should be 0x34": about the byte at `at`, which differs.
[[nodiscard]] std::string difference_text(std::span<const std::byte> bytes, std::size_t at, std::uint64_t seed);

}  // namespace rdmacomm::programs
