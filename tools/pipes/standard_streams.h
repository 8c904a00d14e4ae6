// standard_streams.h - standard input and output, read and written by one thread that others can wake.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/unique_fd.h"
#include "rdmacomm/result.h"

namespace rdmacomm::pipes {

/// Whether a standard stream is open. To be asked first of all: else what is opened next gets its number.
/// Returns  what the system says; the context has `name`
[[nodiscard]] Status check_open(int fd, const char* name);

/// Where the bytes come from. A resource that owns nothing: the descriptor stays open.
/// Threads: one at a time.
class Input {
 public:
  /// How long a block that is not full waits for more, where nothing is there.
  static constexpr std::chrono::milliseconds kGather{1};

  /// fd       open for reading; a pipe is made as large as the system lets it
  /// wake_fd  when it is readable, read() returns: descriptor of a WakeEvent
  /// Returns  what the system says of a descriptor that is none; std::errc::is_a_directory
  [[nodiscard]] static Result<Input> open(int fd, int wake_fd);

  /// Of a file: what it has from here on. Empty: nobody knows.
  [[nodiscard]] std::optional<std::uint64_t> size() const noexcept { return size_; }

  struct Got {
    std::size_t bytes = 0;
    bool end = false;  ///< nothing comes behind them
  };
  /// Reads until `room` is full, or the end, or, where there is something, nothing more has come for kGather.
  /// Returns  kStopped: woken; what the system says
  [[nodiscard]] Result<Got> read(std::span<std::byte> room) const;

 private:
  Input(int fd, int wake_fd, std::optional<std::uint64_t> size) : fd_(fd), wake_fd_(wake_fd), size_(size) {}

  int fd_;
  int wake_fd_;
  std::optional<std::uint64_t> size_;
};

/// Where the bytes go. A resource that owns nothing, but that finish() closes the descriptor.
/// Threads: one at a time.
class Output {
 public:
  /// fd, wake_fd  as of Input, open for writing
  /// sync         finish() sees to it that all is on the disk
  /// Returns      what the system says of a descriptor that is none; kInvalidArgument: `sync`, and it is no file
  [[nodiscard]] static Result<Output> open(int fd, int wake_fd, bool sync);

  /// Writes all. Never blocks for longer than until it is woken, but for what a file takes.
  /// Returns  kStopped: woken; std::errc::broken_pipe: whoever reads it is gone; what else the system says
  [[nodiscard]] Status write(std::span<const std::byte> bytes) const;
  /// Whether whoever reads it is gone, as far as that can be known without writing.
  [[nodiscard]] bool reader_is_gone() const noexcept;
  /// After the last write(): everything is written, and was on the disk if asked for. Once.
  /// Returns  what the system says
  [[nodiscard]] Status finish();

 private:
  Output(int fd, int wake_fd, bool sync) : fd_(fd), wake_fd_(wake_fd), sync_(sync) {}
  [[nodiscard]] Status wait_for_room(int fd) const;

  int fd_;
  int wake_fd_;
  bool sync_;
  bool waits_ = false;    // it is no file: there may be no room
  UniqueFd nonblocking_;  // the same pipe; none: it cannot be had, and small pieces go where there is room for them
};

}  // namespace rdmacomm::pipes
