#include "support/pattern.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>

namespace rdmacomm::programs {
namespace {

/// The 8 bytes at word `index` of the pattern of `seed`: splitmix64, whose outputs are different for each (seed,
/// index).
std::uint64_t pattern_word(std::uint64_t index, std::uint64_t seed) {
  std::uint64_t z = (seed * 0x9e3779b97f4a7c15U) ^ (index + 1) * 0xd1342543de82ef95U;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
  z ^= z >> 31;
  // The first byte in memory is the lowest byte of the word, on any machine.
  return std::endian::native == std::endian::little ? z : __builtin_bswap64(z);
}

std::string hex(std::byte value) {
  char text[8];
  std::snprintf(text, sizeof(text), "0x%02x", static_cast<unsigned>(value));
  return text;
}

}  // namespace

std::byte pattern_byte(std::size_t offset, std::uint64_t seed) {
  const std::uint64_t word = pattern_word(offset / 8, seed);
  return std::as_bytes(std::span(&word, 1))[offset % 8];
}

void fill_pattern(std::span<std::byte> bytes, std::uint64_t seed) {
  for (std::size_t at = 0; at < bytes.size(); at += 8) {
    const std::uint64_t word = pattern_word(at / 8, seed);
    std::memcpy(bytes.data() + at, &word, std::min<std::size_t>(8, bytes.size() - at));
  }
}

std::size_t first_difference(std::span<const std::byte> bytes, std::uint64_t seed) {
  for (std::size_t at = 0; at < bytes.size(); at += 8) {
    const std::uint64_t word = pattern_word(at / 8, seed);
    const std::size_t length = std::min<std::size_t>(8, bytes.size() - at);
    if (std::memcmp(bytes.data() + at, &word, length) == 0) continue;
    while (bytes[at] == pattern_byte(at, seed)) ++at;
    return at;
  }
  return bytes.size();
}

std::string difference_text(std::span<const std::byte> bytes, std::size_t at, std::uint64_t seed) {
  return "byte " + std::to_string(at) + " of " + std::to_string(bytes.size()) + " is " + hex(bytes[at]) +
         " and should be " + hex(pattern_byte(at, seed));
}

}  // namespace rdmacomm::programs
