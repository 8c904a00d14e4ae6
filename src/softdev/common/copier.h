// copier.h - copies into memory that another process may be polling.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/copy_bytes.h"

namespace rdmacomm::softdev {

/// Copies the messages of one queue pair that go straight from one place in memory to another. Threads: one at a time.
///
/// Long messages are copied in pieces: one message from its beginning to its end, the next one from its end to its
/// beginning. A copy that begins at the end of the previous one finds that part still in the core's cache. This helps
/// every time if the application sends a buffer again unchanged. If it fills the buffer in between, its end is in the
/// cache, which helps every second time. See docs/adr/0013-long-copies-turn.md.
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

  /// The same, but a receiver that sees the last byte sees all bytes. Receivers that poll the last byte of a WRITE
  /// expect this. The last aligned 8 bytes are stored last, by aligned stores with release.
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
