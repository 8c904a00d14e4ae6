// output_buffer.h - a thread-safe stream buffer for a descriptor, which keeps the system's error.
#pragma once

#include <array>
#include <cstddef>
#include <mutex>
#include <streambuf>
#include <string_view>
#include <system_error>

namespace rdmacomm::programs {

/// Writes to a descriptor, which the caller keeps. A terminal gets each line when it is complete. Other files get data
/// when 16 KiB are full or the stream is flushed. After an error nothing more is written.
///
/// Threads: any, as with std::cout. It does not use the put area of std::streambuf, which threads would share without a
/// lock. (A thread that writes to std::cerr also flushes std::cout, because the two are tied.)
class OutputBuffer final : public std::streambuf {
 public:
  explicit OutputBuffer(int descriptor);

  /// The first error that the system returned for a write; false if there was none.
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
  mutable std::mutex mutex_;  // guards the members below
  std::array<char, 16384> buffer_{};
  std::size_t used_ = 0;
  std::error_code failed_;
};

}  // namespace rdmacomm::programs
