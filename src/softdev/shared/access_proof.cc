#include "softdev/shared/access_proof.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <string>

namespace rdmacomm::softdev {
namespace {

/// Opens the memfd that is descriptor `number` of process `pid`, for reading. Not valid: it is no memfd of `size`
/// bytes. The peer chooses the number, so it may name a device, a pipe, or a file of a file system that a process
/// serves. Such a file may act when it is opened or asked for its attributes, so it is opened with O_PATH until it is
/// known to be a memfd.
UniqueFd open_memfd_of(pid_t pid, int number, dev_t memfds, std::uint64_t size) {
  const std::string path = "/proc/" + std::to_string(pid) + "/fd/" + std::to_string(number);
  const UniqueFd found(open(path.c_str(), O_PATH | O_CLOEXEC));
  if (!found) return {};
  struct statx about {};
  constexpr unsigned kWanted = STATX_TYPE | STATX_SIZE;
  if (statx(found.get(), "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, kWanted, &about) != 0) return {};
  const bool is_memfd = makedev(about.stx_dev_major, about.stx_dev_minor) == memfds && S_ISREG(about.stx_mode);
  if (!is_memfd || about.stx_size != size) return {};
  return UniqueFd(open(("/proc/self/fd/" + std::to_string(found.get())).c_str(), O_RDONLY | O_CLOEXEC));
}

}  // namespace

int AccessProof::create() {
  file_.reset(memfd_create("soft0-proof", MFD_CLOEXEC));
  if (!file_) return errno;
  if (getrandom(&own_, sizeof(own_), 0) != static_cast<ssize_t>(sizeof(own_))) return EAGAIN;
  return pwrite(file_.get(), &own_, sizeof(own_), 0) == static_cast<ssize_t>(sizeof(own_)) ? 0 : errno;
}

int AccessProof::read_peer(pid_t pid, int number) {
  struct stat own {};
  if (pid <= 0 || number < 0 || fstat(file_.get(), &own) != 0) return EPERM;
  const UniqueFd file = open_memfd_of(pid, number, own.st_dev, sizeof(peer_));
  const bool none_is_free = !file && (errno == EMFILE || errno == ENFILE);
  if (none_is_free) return errno;
  return file && pread(file.get(), &peer_, sizeof(peer_), 0) == static_cast<ssize_t>(sizeof(peer_)) ? 0 : EPERM;
}

}  // namespace rdmacomm::softdev
