// copy.h - copies into memory that another process may be watching.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace rdmacomm::softdev {

namespace detail {

template <typename T>
inline void store_piece(std::byte*& to, const std::byte*& from, std::size_t& left) noexcept {
  if (left < sizeof(T)) return;
  T value;
  std::memcpy(&value, from, sizeof(T));
  __atomic_store_n(reinterpret_cast<T*>(to), value, __ATOMIC_RELEASE);
  to += sizeof(T);
  from += sizeof(T);
  left -= sizeof(T);
}

}  // namespace detail

/// Copies up to 64 bytes without a call: two overlapping pieces of a fixed size cover every length between.
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

/// Copies `count` bytes so that whoever sees the last of them sees all of them, as receivers that poll the last
/// byte of a WRITE expect: what lies in the last aligned 8 bytes is stored last, by aligned stores with release.
inline void copy_last_byte_last(std::byte* to, const std::byte* from, std::size_t count) noexcept {
  if (count == 0) return;
  const std::size_t past_word = reinterpret_cast<std::uintptr_t>(to + count) % 8;
  std::size_t tail = std::min<std::size_t>(past_word == 0 ? 8 : past_word, count);
  const std::size_t head = count - tail;
  if (head != 0) std::memcpy(to, from, head);
  to += head;
  from += head;
  // Only a message shorter than its last word can start in the middle of it; bytes do for those.
  if (reinterpret_cast<std::uintptr_t>(to) % 8 == 0) {
    detail::store_piece<std::uint64_t>(to, from, tail);
    detail::store_piece<std::uint32_t>(to, from, tail);
    detail::store_piece<std::uint16_t>(to, from, tail);
  }
  while (tail != 0) detail::store_piece<std::uint8_t>(to, from, tail);
}

}  // namespace rdmacomm::softdev
