// A function of newer C libraries that the linked-in libstdc++ uses. With a copy here, this library also runs with older
// ones. It is not exported.
#include <fcntl.h>
#include <sys/random.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>

namespace {

template <typename Read>
bool fill(std::uint32_t& value, Read read) noexcept {
  ssize_t got = -1;
  do {
    got = read(&value, sizeof(value));
  } while (got < 0 && errno == EINTR);
  return got == static_cast<ssize_t>(sizeof(value));
}

}  // namespace

extern "C" {

/// A random number, for std::random_device. glibc has it since release 2.36. Like that one, it ends the process if the
/// system has no random numbers: neither getrandom(2) nor /dev/urandom.
std::uint32_t arc4random() noexcept {
  const int error = errno;
  std::uint32_t value = 0;
  bool is_filled = fill(value, [](void* to, std::size_t bytes) { return getrandom(to, bytes, 0); });
  if (!is_filled) {
    const int file = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
    is_filled = file >= 0 && fill(value, [file](void* to, std::size_t bytes) { return read(file, to, bytes); });
    if (file >= 0) close(file);
  }
  if (!is_filled) std::abort();
  errno = error;
  return value;
}
}
