#include "softdev/cm/cm_file.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <system_error>
#include <utility>

#include "softdev/common/folder_names.h"

namespace rdmacomm::softdev {

std::uint64_t inode_of(int fd) noexcept {
  struct statx found {};
  const long result = syscall(SYS_statx, fd, "", AT_EMPTY_PATH, STATX_INO, &found);
  return result == 0 ? found.stx_ino : 0;
}

bool is_pipe(int fd) noexcept {
  struct statx found {};
  return syscall(SYS_statx, fd, "", AT_EMPTY_PATH, STATX_TYPE, &found) == 0 && S_ISFIFO(found.stx_mode);
}

namespace {

void close_raw(UniqueFd& file) noexcept {
  if (file) (void)syscall(SYS_close, file.release());
}

/// True if `wanted` is true for some descriptor of this process, or if they cannot be listed. Raw calls, since the
/// program's may be others.
template <typename Wanted>
bool some_descriptor(Wanted wanted) noexcept {
  UniqueFd list(static_cast<int>(syscall(SYS_openat, AT_FDCWD, "/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC)));
  if (!list) return true;
  bool is_found = false;
  const bool is_complete = for_each_name(list.get(), [&](const char* name, unsigned char /*type*/) {
    int fd = -1;
    const bool is_number = std::from_chars(name, name + std::strlen(name), fd).ec == std::errc();
    is_found = is_found || (is_number && wanted(fd));
  });
  close_raw(list);
  return is_found || !is_complete;
}

}  // namespace

int CmFile::open(int flags) noexcept {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return -1;
  UniqueFd readable(ends[0]);
  bell_.reset(ends[1]);
  waiting_end_.reset(static_cast<int>(syscall(SYS_fcntl, readable.get(), F_DUPFD_CLOEXEC, 0)));
  const bool is_ready = readable && bell_ && waiting_end_ && fcntl(bell_.get(), F_SETFL, O_NONBLOCK) == 0 &&
                        ((flags & O_NONBLOCK) == 0 || fcntl(readable.get(), F_SETFL, O_NONBLOCK) == 0) &&
                        ((flags & O_CLOEXEC) != 0 || fcntl(readable.get(), F_SETFD, 0) == 0);
  if (!is_ready) {
    close_raw(readable);
    return -1;
  }
  inode_ = inode_of(readable.get());
  first_ = readable.get();
  return readable.release();
}

void CmFile::abandon() noexcept {
  close_raw(bell_);
  close_raw(waiting_end_);
}

CmFile::Use CmFile::use() const noexcept {
  if (inode_of(bell_.get()) != inode_ || inode_of(waiting_end_.get()) != inode_) return Use::kLost;
  if (inode_of(first_) == inode_) return Use::kOpen;
  const auto is_programs = [this](int fd) {
    return fd != bell_.get() && fd != waiting_end_.get() && inode_of(fd) == inode_;
  };
  return some_descriptor(is_programs) ? Use::kOpen : Use::kClosed;
}

void CmFile::forget() noexcept {
  (void)bell_.release();
  (void)waiting_end_.release();
}

int CmFile::wait() const {
  const bool waits = (syscall(SYS_fcntl, waiting_end_.get(), F_GETFL) & O_NONBLOCK) == 0;
  constexpr timespec kAtOnce{};
  pollfd readable{waiting_end_.get(), POLLIN, 0};
  const int ready = ppoll(&readable, 1, waits ? nullptr : &kAtOnce, nullptr);
  if (ready < 0) return errno;
  return ready == 0 ? EAGAIN : 0;
}

bool CmFile::take_byte() const noexcept {
  int bytes = 0;
  char byte = 0;
  return ioctl(waiting_end_.get(), FIONREAD, &bytes) == 0 && bytes > 0 &&
         syscall(SYS_read, waiting_end_.get(), &byte, 1) == 1;
}

void CmFile::ring() noexcept {
  const char byte = 0;
  ssize_t written = 0;
  do {
    written = syscall(SYS_write, bell_.get(), &byte, 1);
  } while (written < 0 && errno == EINTR);
  if (written != 1) ++silent_;
}

/// Takes back the bytes of events that were removed. A thread of the program may have read some of them already.
void CmFile::silence(std::size_t count) noexcept {
  const std::size_t unwritten = std::min<std::size_t>(count, silent_);
  silent_ -= static_cast<std::uint32_t>(unwritten);
  if (count == unwritten) return;
  // The program's read end may wait for bytes; this one does not. Raw calls, since the program's open() and read() may
  // be others.
  std::array<char, 32> path{};
  (void)std::snprintf(path.data(), path.size(), "/proc/self/fd/%d", bell_.get());
  UniqueFd reader(static_cast<int>(syscall(SYS_openat, AT_FDCWD, path.data(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)));
  std::array<char, 64> bytes{};
  for (std::size_t left = reader ? count - unwritten : 0; left > 0;) {
    const long got = syscall(SYS_read, reader.get(), bytes.data(), std::min(left, bytes.size()));
    if (got <= 0) break;
    left -= static_cast<std::size_t>(got);
  }
  close_raw(reader);
}

void CmFile::push(CmEvent event) {
  events_.push_back(std::move(event));
  ring();
}

bool CmFile::pop(CmEvent& event) {
  if (silent_ > 0) {
    --silent_;
    ring();
  }
  if (events_.empty()) return false;
  event = std::move(events_.front());
  events_.pop_front();
  return true;
}

std::deque<CmEvent> CmFile::remove(const std::function<bool(const CmEvent&)>& wanted) {
  std::deque<CmEvent> taken;
  std::deque<CmEvent> kept;
  for (CmEvent& event : events_) (wanted(event) ? taken : kept).push_back(std::move(event));
  events_ = std::move(kept);
  silence(taken.size());
  return taken;
}

}  // namespace rdmacomm::softdev
