#include "rdma_copy/target_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/system_call.h"

namespace rdmacomm::copying {
namespace {

Error folder_failed() {
  return make_error(last_system_error(), "");
}

UniqueFd open_below(int parent, const std::string& name) {
  return UniqueFd(::openat(parent, name.empty() ? "." : name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
}

}  // namespace

Status TargetFolder::make(const TargetFolder& parent, unsigned mode, bool archive) {
  const std::string& name = entry_.name;
  const bool made = !name.empty() && ::mkdirat(parent.fd(), name.c_str(), mode | S_IRWXU) == 0;
  if (!made && !name.empty() && last_system_error() != std::errc::file_exists) return folder_failed();
  UniqueFd opened = open_below(parent.fd(), name);
  struct stat is = {};
  if (!opened || ::fstat(opened.get(), &is) != 0) return folder_failed();
  fd_ = std::move(opened);
  is_new_ = made;
  // A user who can write in it anyway (root) leaves its mode unchanged. Then nothing must be restored if this process
  // is killed.
  const bool closed = (is.st_mode & S_IRWXU) != S_IRWXU && ::faccessat(fd(), ".", W_OK | X_OK, AT_EACCESS) != 0;
  if (closed) (void)::fchmod(fd(), (is.st_mode & 07777) | S_IRWXU);  // on failure, the first write in it fails
  // A new directory inherits set-group-ID from its parent. The local system decides that, as for an existing directory.
  const unsigned own = is.st_mode & (S_ISUID | S_ISGID);
  if (archive || (made && (mode & S_IRWXU) != S_IRWXU)) {
    mode_ = mode | own;
  } else if (closed) {
    mode_ = is.st_mode & 07777;
  }
  return {};
}

/// A directory that does not exist yet counts as empty.
Status TargetFolder::look_into(const TargetFolder& parent) {
  if (!parent.is_absent_) fd_ = open_below(parent.fd(), entry_.name);
  if (fd_) return {};
  is_absent_ = parent.is_absent_ || last_system_error() == std::errc::no_such_file_or_directory;
  if (!is_absent_) return folder_failed();
  fd_.reset(::dup(parent.fd()));
  return {};
}

Status TargetFolder::would_take(const std::string& name) const {
  struct stat is = {};
  if (is_absent_ || ::fstatat(fd(), name.c_str(), &is, AT_SYMLINK_NOFOLLOW) != 0) return {};
  if (S_ISREG(is.st_mode) || S_ISLNK(is.st_mode)) return {};
  return make_error(std::make_error_code(S_ISDIR(is.st_mode) ? std::errc::is_a_directory : std::errc::not_supported),
                    "");
}

Status TargetFolder::settle(bool archive, bool sync) const {
  if (mode_ && ::fchmod(fd(), *mode_) != 0) return folder_failed();
  if (archive && ::futimens(fd(), entry_.modified.for_utimens().data()) != 0) return folder_failed();
  if (sync && ::fsync(fd()) != 0) return folder_failed();
  return {};
}

}  // namespace rdmacomm::copying
