// copy.h - copies a few bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace rdmacomm::softdev {

/// Copies up to 64 bytes without a function call. Two overlapping pieces of a fixed size cover each length.
inline void copy_small(std::byte* to, const std::byte* from, std::size_t count) noexcept {
  const auto two = [=](auto piece) {
    decltype(piece) first;
    decltype(piece) last;
    std::memcpy(&first, from, sizeof(piece));
    std::memcpy(&last, from + count - sizeof(piece), sizeof(piece));
    std::memcpy(to, &first, sizeof(piece));
    std::memcpy(to + count - sizeof(piece), &last, sizeof(piece));
  };
  struct Bytes16 {
    std::uint64_t words[2];
  };
  struct Bytes32 {
    std::uint64_t words[4];
  };
  if (count >= 32) return two(Bytes32{});
  if (count >= 16) return two(Bytes16{});
  if (count > 8) return two(std::uint64_t{});
  if (count == 8) {
    std::memcpy(to, from, 8);  // one store
    return;
  }
  if (count >= 4) return two(std::uint32_t{});
  for (std::size_t i = 0; i < count; ++i) to[i] = from[i];
}

}  // namespace rdmacomm::softdev
