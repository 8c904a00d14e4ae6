#include "softdev/cm/cm_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

namespace rdmacomm::softdev {

std::uint64_t inode_of(int fd) noexcept {
  struct statx found {};
  const long result = syscall(SYS_statx, fd, "", AT_EMPTY_PATH, STATX_INO, &found);
  return result == 0 ? found.stx_ino : 0;
}

int CmFile::open(int flags) noexcept {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return -1;
  UniqueFd readable(ends[0]);
  bell_.reset(ends[1]);
  const bool is_ready = readable && bell_ && fcntl(bell_.get(), F_SETFL, O_NONBLOCK) == 0 &&
                        ((flags & O_NONBLOCK) == 0 || fcntl(readable.get(), F_SETFL, O_NONBLOCK) == 0) &&
                        ((flags & O_CLOEXEC) != 0 || fcntl(readable.get(), F_SETFD, 0) == 0);
  if (!is_ready) return -1;
  inode_ = inode_of(readable.get());
  return readable.release();
}

void CmFile::ring() noexcept {
  const char byte = 0;
  ssize_t written = 0;
  do {
    written = syscall(SYS_write, bell_.get(), &byte, 1);
  } while (written < 0 && errno == EINTR);
  if (written != 1) ++silent_;
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
  return taken;
}

}  // namespace rdmacomm::softdev
