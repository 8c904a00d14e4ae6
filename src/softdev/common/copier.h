// copier.h - copies into memory that another process may be watching.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/copy_bytes.h"

namespace rdmacomm::softdev {

/// Copies the messages of one queue pair that go straight from one place in memory to another. Threads: one at a time.
///
/// Long ones there and back by turns, in pieces: what was touched last is still in the core's cache. Where a buffer leaves
/// again as it is, that is where the copy before has ended; where it has been filled meanwhile, its end, every other
/// time. See docs/adr/0013-long-copies-turn.md.
class Copier {
 public:
  static constexpr std::size_t kPieceBytes = std::size_t{64} << 10;
  static constexpr std::size_t kTurnsFrom = 15 * kPieceBytes;  ///< shorter ones would gain nothing

  void copy(std::byte* to, const std::byte* from, std::size_t count) noexcept {
    if (count < kTurnsFrom) {
      copy_bytes(to, from, count);
    } else {
      copy_long(to, from, count);
    }
  }

  /// The same so that whoever sees the last byte sees all of them, as receivers that poll the last byte of a WRITE
  /// expect: what lies in the last aligned 8 bytes is stored last, by aligned stores with release.
  void copy_last_byte_last(std::byte* to, const std::byte* from, std::size_t count) noexcept {
    if (count != 8 || reinterpret_cast<std::uintptr_t>(to) % 8 != 0) return copy_and_store_last(to, from, count);
    std::uint64_t value;
    std::memcpy(&value, from, sizeof(value));
    __atomic_store_n(reinterpret_cast<std::uint64_t*>(to), value, __ATOMIC_RELEASE);
  }

 private:
  void copy_long(std::byte* to, const std::byte* from, std::size_t count) noexcept;
  void copy_and_store_last(std::byte* to, const std::byte* from, std::size_t count) noexcept;

  bool backwards_ = false;
};

}  // namespace rdmacomm::softdev
