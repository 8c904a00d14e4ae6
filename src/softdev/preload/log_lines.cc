// Log lines in the preloaded library: to standard error, without glog, which the program may not have.
// They are rare: why the device cannot be opened, and the last words of a process in which the code of this project
// breaks one of its own rules.
#include <unistd.h>

#include <string>

#include "base/logging.h"

namespace rdmacomm {

LogLine::~LogLine() {
  const std::string line = "soft0: " + std::string(buffer_.text()) + "\n";
  (void)!write(STDERR_FILENO, line.data(), line.size());
}

int max_vlog_level() noexcept {
  return 0;
}

}  // namespace rdmacomm
