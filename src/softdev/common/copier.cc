#include "softdev/common/copier.h"

#include <algorithm>

namespace rdmacomm::softdev {
namespace {

template <typename T>
void store_piece(std::byte*& to, const std::byte*& from, std::size_t& left) noexcept {
  if (left < sizeof(T)) return;
  T value;
  std::memcpy(&value, from, sizeof(T));
  __atomic_store_n(reinterpret_cast<T*>(to), value, __ATOMIC_RELEASE);
  to += sizeof(T);
  from += sizeof(T);
  left -= sizeof(T);
}

}  // namespace

/// The last piece is always copied last, in both directions. So a receiver that polls a mark near the end of a message
/// does not see it earlier than with memcpy.
void Copier::copy_long(std::byte* to, const std::byte* from, std::size_t count) noexcept {
  const std::size_t before_last = (count - 1) / kPieceBytes;  // pieces, all of them whole
  for (std::size_t i = 0; i < before_last; ++i) {
    const std::size_t at = (backwards_ ? before_last - 1 - i : i) * kPieceBytes;
    copy_bytes(to + at, from + at, kPieceBytes);
  }
  const std::size_t last = before_last * kPieceBytes;
  copy_bytes(to + last, from + last, count - last);
  backwards_ = !backwards_;
}

void Copier::copy_and_store_last(std::byte* to, const std::byte* from, std::size_t count) noexcept {
  if (count == 0) return;
  const std::size_t past_word = reinterpret_cast<std::uintptr_t>(to + count) % 8;
  std::size_t tail = std::min<std::size_t>(past_word == 0 ? 8 : past_word, count);
  const std::size_t head = count - tail;
  if (head != 0) copy(to, from, head);
  to += head;
  from += head;
  // Only a message that lies within one 8-byte word can begin in the middle of the word; it is stored byte by byte.
  if (reinterpret_cast<std::uintptr_t>(to) % 8 == 0) {
    store_piece<std::uint64_t>(to, from, tail);
    store_piece<std::uint32_t>(to, from, tail);
    store_piece<std::uint16_t>(to, from, tail);
  }
  while (tail != 0) store_piece<std::uint8_t>(to, from, tail);
}

}  // namespace rdmacomm::softdev
