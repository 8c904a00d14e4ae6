// own_file.h - the memfd that contains the application's own memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "softdev/shared/address_map.h"

namespace rdmacomm::softdev::own {

/// A sparse memfd. A range is never taken twice, so a peer that still maps memory that was unmapped can never reach
/// memory that was mapped later.
/// Threads: the caller has locked the state, except for punch() and maps().
class OwnFile {
 public:
  /// Reserves a range of the file, which is created if needed. Returns false: the system refuses, or the program has
  /// closed the descriptor.
  [[nodiscard]] bool take(std::size_t length, std::size_t alignment, std::uint64_t& offset) noexcept;
  /// Maps a range of the file. Returns nullptr and errno on failure.
  [[nodiscard]] void* map(void* address, std::size_t length, int flags, std::uint64_t offset) const noexcept;
  /// Gives pages back to the system. They read as zeroes then.
  void punch(std::uint64_t offset, std::size_t length) const noexcept;
  /// True if pages of the range are in memory.
  [[nodiscard]] bool has_data(std::uint64_t offset, std::size_t length) const noexcept;
  /// The descriptor; -1: no such file, or the program has closed the descriptor.
  [[nodiscard]] int fd() const noexcept;
  [[nodiscard]] bool create() noexcept;
  /// True if the descriptor had this number when it was made or moved. Cost: none.
  [[nodiscard]] bool has_number(int number) const noexcept { return fd_ >= 0 && fd_ == number; }
  /// Gives the descriptor another number. Returns false: no number is free.
  [[nodiscard]] bool move() noexcept;
  [[nodiscard]] bool exists() const noexcept { return fd_ >= 0; }
  [[nodiscard]] bool maps(const MappedRange& range) const noexcept { return identity_.is_mapped_in(range); }
  /// In a child: the file is its parent's.
  void forget() noexcept;

 private:
  int fd_ = -1;
  bool refused_ = false;  // the system refuses to create it
  FileIdentity identity_;
  std::uint64_t next_window_ = 0;
  // Ranges are taken from the end of a window to its beginning, as the kernel places mappings. So neighbours in memory
  // are neighbours in the file, and the kernel merges their mappings into one.
  std::uint64_t window_start_ = 0;
  std::uint64_t window_end_ = 0;
};

}  // namespace rdmacomm::softdev::own
