#include "support/standard_output.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <iostream>
#include <streambuf>
#include <string_view>

#include "rdmacomm/base/system_call.h"

namespace rdmacomm::programs {
namespace {

class OutputBuffer final : public std::streambuf {
 public:
  OutputBuffer() : by_lines_(::isatty(STDOUT_FILENO) == 1) { setp(buffer_.data(), buffer_.data() + buffer_.size()); }

  [[nodiscard]] std::error_code failed() const noexcept { return failed_; }

 protected:
  int_type overflow(int_type c) override {
    if (sync() != 0) return traits_type::eof();
    if (traits_type::eq_int_type(c, traits_type::eof())) return traits_type::not_eof(c);
    return sputc(traits_type::to_char_type(c));
  }
  std::streamsize xsputn(const char* text, std::streamsize count) override {
    const std::streamsize taken = std::streambuf::xsputn(text, count);
    const std::string_view all(text, static_cast<std::size_t>(count));
    if (by_lines_ && all.find('\n') != std::string_view::npos && sync() != 0) return 0;
    return taken;
  }
  int sync() override {
    std::string_view left(pbase(), static_cast<std::size_t>(pptr() - pbase()));
    setp(buffer_.data(), buffer_.data() + buffer_.size());
    while (!left.empty() && !failed_) {
      const ssize_t written = retry_interrupted([&] { return ::write(STDOUT_FILENO, left.data(), left.size()); });
      if (written < 0) {
        failed_ = last_system_error();
      } else {
        left.remove_prefix(static_cast<std::size_t>(written));
      }
    }
    return failed_ ? -1 : 0;
  }

 private:
  const bool by_lines_;
  std::array<char, 16384> buffer_{};
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
