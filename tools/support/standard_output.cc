#include "support/standard_output.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdint>
#include <iostream>

#include "support/output_buffer.h"

namespace rdmacomm::programs {
namespace {

std::size_t width_of_output = SIZE_MAX;
OutputBuffer* output_buffer = nullptr;  // never deleted: std::cout is flushed after all destructors

}  // namespace

void set_up_standard_output() {
  output_buffer = new OutputBuffer(STDOUT_FILENO);
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
