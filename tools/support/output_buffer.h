// output_buffer.h - a stream's buffer in front of a descriptor, for several threads, that keeps the system's error.
#pragma once

#include <array>
#include <cstddef>
#include <mutex>
#include <streambuf>
#include <string_view>
#include <system_error>

namespace rdmacomm::programs {

/// Writes to a descriptor, which stays the caller's. A terminal gets each line when it ends, other files when 16 KiB
/// are full or the stream is flushed. After an error nothing more is written.
///
/// Threads: any, as with std::cout. It has no put area of std::streambuf's, which threads would share without a lock.
/// (A thread that writes to std::cerr flushes std::cout, too, because the two are tied.)
class OutputBuffer final : public std::streambuf {
 public:
  explicit OutputBuffer(int descriptor);

  /// The first error that the system returned for a write. If there was none, it is false.
  [[nodiscard]] std::error_code failed() const noexcept;

 protected:
  int_type overflow(int_type c) override;
  std::streamsize xsputn(const char* text, std::streamsize count) override;
  int sync() override;

 private:
  bool append(std::string_view text);
  bool write_all();

  const int descriptor_;
  const bool by_lines_;
  mutable std::mutex mutex_;  // guards what follows
  std::array<char, 16384> buffer_{};
  std::size_t used_ = 0;
  std::error_code failed_;
};

}  // namespace rdmacomm::programs
