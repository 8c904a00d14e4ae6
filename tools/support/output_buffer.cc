#include "support/output_buffer.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/system_call.h"

namespace rdmacomm::programs {

OutputBuffer::OutputBuffer(int descriptor) : descriptor_(descriptor), by_lines_(::isatty(descriptor) == 1) {}

std::error_code OutputBuffer::failed() const noexcept {
  const std::lock_guard lock(mutex_);
  return failed_;
}

OutputBuffer::int_type OutputBuffer::overflow(int_type c) {
  const std::lock_guard lock(mutex_);
  if (traits_type::eq_int_type(c, traits_type::eof())) return failed_ ? traits_type::eof() : traits_type::not_eof(c);
  const char one = traits_type::to_char_type(c);
  return append({&one, 1}) ? c : traits_type::eof();
}

std::streamsize OutputBuffer::xsputn(const char* text, std::streamsize count) {
  const std::lock_guard lock(mutex_);
  return append({text, static_cast<std::size_t>(count)}) ? count : 0;
}

int OutputBuffer::sync() {
  const std::lock_guard lock(mutex_);
  return write_all() ? 0 : -1;
}

bool OutputBuffer::append(std::string_view text) {
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

bool OutputBuffer::write_all() {
  std::string_view left(buffer_.data(), std::exchange(used_, 0));
  while (!left.empty() && !failed_) {
    const ssize_t written = retry_interrupted([&] { return ::write(descriptor_, left.data(), left.size()); });
    if (written < 0) {
      failed_ = last_system_error();
    } else {
      left.remove_prefix(static_cast<std::size_t>(written));
    }
  }
  return !failed_;
}

}  // namespace rdmacomm::programs
