// standard_streams.h - standard input and output for one thread, which other threads can wake.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/unique_fd.h"
#include "rdmacomm/result.h"

namespace rdmacomm::pipes {

/// Whether a standard stream is open. Check this first: otherwise the next opened file gets its number.
/// Returns  the system's error; the context has `name`
[[nodiscard]] Status check_open(int fd, const char* name);

/// The input. A resource that owns nothing: the descriptor stays open.
/// Threads: one at a time.
class Input {
 public:
  /// How long read() waits for more bytes if a block is not full and no bytes are ready.
  static constexpr std::chrono::milliseconds kGather{1};

  /// fd       open for reading; a pipe is enlarged as far as the system allows
  /// wake_fd  read() returns when it is readable: the descriptor of a WakeEvent
  /// Returns  the system's error for a wrong descriptor; std::errc::is_a_directory
  [[nodiscard]] static Result<Input> open(int fd, int wake_fd);

  /// The rest of a file from its current position. Empty: unknown.
  [[nodiscard]] std::optional<std::uint64_t> size() const noexcept { return size_; }

  struct Got {
    std::size_t bytes = 0;
    bool end = false;  ///< no bytes follow
  };
  /// Reads until `room` is full, until the end, or, after at least one byte, until no more has arrived for kGather.
  /// Returns  kStopped: woken; or the system's error
  [[nodiscard]] Result<Got> read(std::span<std::byte> room) const;

 private:
  Input(int fd, int wake_fd, std::optional<std::uint64_t> size) : fd_(fd), wake_fd_(wake_fd), size_(size) {}

  int fd_;
  int wake_fd_;
  std::optional<std::uint64_t> size_;
};

/// The output. A resource that does not own the descriptor, but finish() closes it.
/// Threads: one at a time.
class Output {
 public:
  /// fd, wake_fd  as for Input, open for writing
  /// sync         finish() makes sure that all data is on the disk
  /// Returns      the system's error for a wrong descriptor; kInvalidArgument: `sync`, and it is no file
  [[nodiscard]] static Result<Output> open(int fd, int wake_fd, bool sync);

  /// Writes all bytes. Can be woken at any time, except during a write to a file.
  /// Returns  kStopped: woken; std::errc::broken_pipe: the reader has closed it; or another system error
  [[nodiscard]] Status write(std::span<const std::byte> bytes) const;
  /// Whether the reader has closed it, as far as this can be known without writing.
  [[nodiscard]] bool reader_is_gone() const noexcept;
  /// Call once after the last write(): all data is written, and is on the disk if `sync` is set.
  /// Returns  the system's error
  [[nodiscard]] Status finish();

 private:
  Output(int fd, int wake_fd, bool sync) : fd_(fd), wake_fd_(wake_fd), sync_(sync) {}
  [[nodiscard]] Status wait_for_room(int fd) const;

  int fd_;
  int wake_fd_;
  bool sync_;
  bool waits_ = false;    // it is no file, so there may be no room
  UniqueFd nonblocking_;  // the same pipe, opened again; none: write() waits for room and writes small pieces
};

}  // namespace rdmacomm::pipes
