#include "softdev/preload/memory/own_file.h"

#include <fcntl.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>

#include "softdev/preload/memory/raw_memory.h"

namespace rdmacomm::softdev::own {
namespace {

constexpr std::uint64_t kFileBytes = std::uint64_t{1} << 56;
constexpr std::uint64_t kWindow = std::uint64_t{1} << 30;

/// The program's close() leaves this descriptor open.
void close_own(int fd) noexcept {
  (void)raw_call(SYS_close, static_cast<std::uintptr_t>(fd), 0, 0);
}

/// Moves a descriptor to a number that programs do not expect to be free, and shells do not use.
int moved_up(int fd) noexcept {
  constexpr rlim_t kWanted = 900;
  rlimit limit{};
  if (fd < 0 || getrlimit(RLIMIT_NOFILE, &limit) != 0) return fd;
  const auto least = static_cast<int>(std::min<rlim_t>(kWanted, limit.rlim_cur / 8 * 7));
  const int moved = fcntl(fd, F_DUPFD_CLOEXEC, least);
  if (moved < 0) return fd;
  close_own(fd);
  return moved;
}

}  // namespace

bool OwnFile::create() noexcept {
  if (fd_ >= 0) return fd() >= 0;
  if (refused_) return false;
  refused_ = true;
  rlimit limit{};
  // The kernel kills a process that makes a file longer than the limit.
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur != RLIM_INFINITY) return false;
  const int fd = moved_up(memfd_create("rdmacomm-own-memory", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (fd < 0) return false;
  // A peer that maps the file must never access memory beyond its end.
  if (ftruncate(fd, static_cast<off_t>(kFileBytes)) != 0 || !FileIdentity::of(fd, identity_) ||
      fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
    close_own(fd);
    return false;
  }
  fd_ = fd;
  refused_ = false;
  return true;
}

bool OwnFile::move() noexcept {
  const int moved = fcntl(fd_, F_DUPFD_CLOEXEC, fd_ + 1);
  if (moved < 0) return false;
  close_own(fd_);
  fd_ = moved;
  return true;
}

int OwnFile::fd() const noexcept {
  FileIdentity now;
  return FileIdentity::of(fd_, now) && now == identity_ ? fd_ : -1;
}

bool OwnFile::take(std::size_t length, std::size_t alignment, std::uint64_t& offset) noexcept {
  if (!create()) return false;
  const auto fits = [&] {
    if (window_end_ - window_start_ < length) return false;
    offset = (window_end_ - length) / alignment * alignment;
    return offset >= window_start_;
  };
  if (!fits()) {
    const std::uint64_t bytes = std::max<std::uint64_t>(kWindow, length + alignment);
    if (length > kFileBytes / 2 || bytes > kFileBytes - next_window_) return false;
    window_start_ = next_window_;
    window_end_ = next_window_ += (bytes + kWindow - 1) / kWindow * kWindow;
    if (!fits()) return false;
  }
  window_end_ = offset;
  return true;
}

void* OwnFile::map(void* address, std::size_t length, int flags, std::uint64_t offset) const noexcept {
  const int current = fd();
  if (current < 0) {
    errno = EBADF;
    return nullptr;
  }
  void* const memory = raw_mmap(address, length, PROT_READ | PROT_WRITE, MAP_SHARED | flags, current, offset);
  return memory == MAP_FAILED ? nullptr : memory;
}

void OwnFile::punch(std::uint64_t offset, std::size_t length) const noexcept {
  const int error = errno;
  if (const int current = fd(); current >= 0) {
    (void)fallocate(current, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                    static_cast<off_t>(length));
  }
  errno = error;
}

bool OwnFile::has_data(std::uint64_t offset, std::size_t length) const noexcept {
  const off_t data = lseek(fd(), static_cast<off_t>(offset), SEEK_DATA);
  return data >= 0 && static_cast<std::uint64_t>(data) < offset + length;
}

void OwnFile::forget() noexcept {
  if (const int current = fd(); current >= 0) close_own(current);
  *this = {};
}

}  // namespace rdmacomm::softdev::own
