#include "pipes/standard_streams.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <string>

#include "base/system_call.h"

namespace rdmacomm::pipes {
namespace {

constexpr int kPipeBytes = 1 << 20;  // the largest size without privilege (pipe-max-size)

Error input_error(std::error_code code) {
  return make_error(code, "cannot read standard input");
}
Error output_error(std::error_code code) {
  if (code == std::errc::broken_pipe) return make_error(code, "the process that reads standard output has closed it");
  return make_error(code, "cannot write to standard output");
}
Error woken() {
  return make_error(Errc::kStopped, "woken");
}

/// O_RDONLY, O_WRONLY or O_RDWR. poll() does not report a wrong one.
int access_of(int fd) {
  return ::fcntl(fd, F_GETFL) & O_ACCMODE;
}

/// A larger pipe needs fewer switches between its two processes. Others may use it, too, so a failure is ignored.
void enlarge(int fd) {
  if (::fcntl(fd, F_GETPIPE_SZ) < kPipeBytes) (void)::fcntl(fd, F_SETPIPE_SZ, kPipeBytes);
}

/// Returns  whether `fd` is ready for `events`, or has failed; false: not within `timeout_ms`. kStopped: `wake_fd` is
///          readable
Result<bool> ready(int fd, short events, int wake_fd, int timeout_ms) {
  std::array<pollfd, 2> waits = {{{.fd = wake_fd, .events = POLLIN, .revents = 0}, {fd, events, 0}}};
  const int count = retry_interrupted([&] { return ::poll(waits.data(), waits.size(), timeout_ms); });
  if (count == -1) return make_error(last_system_error(), "cannot wait for a standard stream");
  if (waits[0].revents != 0) return woken();
  return waits[1].revents != 0;
}

}  // namespace

Status check_open(int fd, const char* name) {
  if (::fcntl(fd, F_GETFD) != -1) return {};
  return make_error(last_system_error(), std::string(name) + " is not open");
}

// Input ---------------------------------------------------------------------------------------------------------------

Result<Input> Input::open(int fd, int wake_fd) {
  struct stat about {};
  if (::fstat(fd, &about) != 0) return input_error(last_system_error());
  if (access_of(fd) == O_WRONLY) return input_error(std::make_error_code(std::errc::bad_file_descriptor));
  if (S_ISDIR(about.st_mode)) return input_error(std::make_error_code(std::errc::is_a_directory));
  if (S_ISFIFO(about.st_mode)) enlarge(fd);
  if (!S_ISREG(about.st_mode)) return Input(fd, wake_fd, {});
  const off_t at = ::lseek(fd, 0, SEEK_CUR);
  (void)::posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
  const off_t left = at >= 0 && at < about.st_size ? about.st_size - at : 0;
  // Files in /proc report a size of 0.
  return Input(fd, wake_fd, left > 0 ? std::optional(static_cast<std::uint64_t>(left)) : std::nullopt);
}

Result<Input::Got> Input::read(std::span<std::byte> room) const {
  Got got;
  while (got.bytes < room.size()) {
    const auto there = ready(fd_, POLLIN, wake_fd_, got.bytes == 0 ? -1 : static_cast<int>(kGather.count()));
    if (!there) return there.error();
    if (!*there) break;
    const ssize_t count = ::read(fd_, room.data() + got.bytes, room.size() - got.bytes);
    if (count == 0) {
      got.end = true;
      break;
    }
    if (count > 0) {
      got.bytes += static_cast<std::size_t>(count);
      continue;
    }
    const std::error_code failed = last_system_error();
    if (failed == std::errc::interrupted || failed == std::errc::resource_unavailable_try_again) continue;
    return input_error(failed);
  }
  return got;
}

// Output --------------------------------------------------------------------------------------------------------------

Result<Output> Output::open(int fd, int wake_fd, bool sync) {
  struct stat about {};
  if (::fstat(fd, &about) != 0) return output_error(last_system_error());
  if (access_of(fd) == O_RDONLY) return output_error(std::make_error_code(std::errc::bad_file_descriptor));
  const bool file = S_ISREG(about.st_mode) || S_ISBLK(about.st_mode);
  if (sync && !file) {
    return make_error(Errc::kInvalidArgument,
                      "--fsync: standard output is not a file, so it cannot be synchronized with a disk");
  }
  Output output(fd, wake_fd, sync);
  output.waits_ = !file && (!S_ISCHR(about.st_mode) || ::isatty(fd) == 1);  // /dev/null always has room
  if (S_ISFIFO(about.st_mode)) {
    enlarge(fd);
    // O_NONBLOCK belongs to the open file, which other processes may share. Therefore the pipe is opened once more.
    const std::string name = "/proc/self/fd/" + std::to_string(fd);
    output.nonblocking_.reset(::open(name.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC));
  }
  return output;
}

Status Output::wait_for_room(int fd) const {
  const auto there = ready(fd, POLLOUT, wake_fd_, -1);
  return there.status();
}

Status Output::write(std::span<const std::byte> bytes) const {
  const int fd = nonblocking_ ? nonblocking_.get() : fd_;
  // A ready pipe, terminal or socket takes PIPE_BUF bytes without blocking.
  const std::size_t at_most = waits_ && !nonblocking_ ? PIPE_BUF : SSIZE_MAX;
  while (!bytes.empty()) {
    if (at_most == PIPE_BUF) {
      if (Status room = wait_for_room(fd); !room.ok()) return room;
    }
    const ssize_t count = ::write(fd, bytes.data(), std::min(bytes.size(), at_most));
    if (count >= 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(count));
      continue;
    }
    const std::error_code failed = last_system_error();
    if (failed == std::errc::interrupted) continue;
    if (failed != std::errc::resource_unavailable_try_again) return output_error(failed);
    if (Status room = wait_for_room(fd); !room.ok()) return room;
  }
  return {};
}

bool Output::reader_is_gone() const noexcept {
  pollfd waits{.fd = fd_, .events = 0, .revents = 0};
  return waits_ && ::poll(&waits, 1, 0) == 1 && (waits.revents & (POLLERR | POLLHUP)) != 0;
}

Status Output::finish() {
  if (sync_ && ::fsync(fd_) != 0) return output_error(last_system_error());
  nonblocking_.reset();
  return ::close(fd_) == 0 ? Status() : output_error(last_system_error());
}

}  // namespace rdmacomm::pipes
