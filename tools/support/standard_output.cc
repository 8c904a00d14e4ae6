#include "support/standard_output.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <iostream>
#include <mutex>
#include <streambuf>
#include <string_view>
#include <utility>

#include "rdmacomm/base/system_call.h"

namespace rdmacomm::programs {
namespace {

/// Several threads may use it at a time, as they may use std::cout: it has no put area of std::streambuf's, which they would share
/// without a lock. A thread that writes to std::cerr flushes std::cout, too, because the two are tied.
class OutputBuffer final : public std::streambuf {
 public:
  OutputBuffer() : by_lines_(::isatty(STDOUT_FILENO) == 1) {}

  [[nodiscard]] std::error_code failed() const noexcept {
    const std::lock_guard lock(mutex_);
    return failed_;
  }

 protected:
  int_type overflow(int_type c) override {
    const std::lock_guard lock(mutex_);
    if (traits_type::eq_int_type(c, traits_type::eof())) return failed_ ? traits_type::eof() : traits_type::not_eof(c);
    const char one = traits_type::to_char_type(c);
    return append({&one, 1}) ? c : traits_type::eof();
  }
  std::streamsize xsputn(const char* text, std::streamsize count) override {
    const std::lock_guard lock(mutex_);
    return append({text, static_cast<std::size_t>(count)}) ? count : 0;
  }
  int sync() override {
    const std::lock_guard lock(mutex_);
    return write_all() ? 0 : -1;
  }

 private:
  bool append(std::string_view text) {
    const bool ends_line = text.find('\n') != std::string_view::npos;
    while (!text.empty()) {
      const std::size_t fits = std::min(text.size(), buffer_.size() - used_);
      std::ranges::copy(text.substr(0, fits), buffer_.begin() + static_cast<std::ptrdiff_t>(used_));
      used_ += fits;
      text.remove_prefix(fits);
      if (used_ == buffer_.size() && !write_all()) return false;
    }
    return by_lines_ && ends_line ? write_all() : !failed_;
  }
  bool write_all() {
    std::string_view left(buffer_.data(), std::exchange(used_, 0));
    while (!left.empty() && !failed_) {
      const ssize_t written = retry_interrupted([&] { return ::write(STDOUT_FILENO, left.data(), left.size()); });
      if (written < 0) {
        failed_ = last_system_error();
      } else {
        left.remove_prefix(static_cast<std::size_t>(written));
      }
    }
    return !failed_;
  }

  const bool by_lines_;
  mutable std::mutex mutex_;  // guards what follows
  std::array<char, 16384> buffer_{};
  std::size_t used_ = 0;
  std::error_code failed_;
};

std::size_t width_of_output = SIZE_MAX;
OutputBuffer* output_buffer = nullptr;  // never deleted: std::cout is flushed after all destructors

}  // namespace

void set_up_standard_output() {
  output_buffer = new OutputBuffer();
  std::cout.rdbuf(output_buffer);
  winsize size{};
  if (::isatty(STDOUT_FILENO) == 1 && ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    width_of_output = size.ws_col;
  }
}

std::size_t output_width() noexcept {
  return width_of_output;
}

Status flush_standard_output() {
  std::cout.flush();
  if (output_buffer == nullptr || !output_buffer->failed()) return {};
  return make_error(output_buffer->failed(), "cannot write to standard output");
}

}  // namespace rdmacomm::programs
