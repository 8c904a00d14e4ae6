#include "base/unique_fd.h"

#include <fcntl.h>

#include <cerrno>

namespace rdmacomm {

int above_standard_streams(int fd) noexcept {
  if (fd < 0 || fd > STDERR_FILENO) return fd;
  const int higher = ::fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  const int why = errno;
  ::close(fd);
  errno = why;
  return higher;
}

}  // namespace rdmacomm
