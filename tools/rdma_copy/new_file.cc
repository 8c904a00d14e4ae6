#include "rdma_copy/new_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <cstdint>
#include <cstdio>
#include <random>
#include <utility>

#include "base/system_call.h"

namespace rdmacomm::copying {
namespace {

constexpr std::size_t kMaxNameBytes = 255;
constexpr const char* kSuffix = ".rdma_copy-partial";
constexpr const char* kLinkSuffix = ".rdma_copy-link";
/// How often a file is created again if another user has locked it before its creator could.
constexpr int kMaxLocksLost = 10;

Error new_file_failed() {
  return make_error(last_system_error(), "");
}

Error busy() {
  return make_error(std::make_error_code(std::errc::text_file_busy), "another copy is writing this file");
}

/// "." and 16 digits, then `suffix`
std::string numbered(std::uint64_t number, const char* suffix) {
  char digits[20];
  std::snprintf(digits, sizeof(digits), ".%016llx", static_cast<unsigned long long>(number));
  return std::string(digits) + suffix;
}

std::string partial_name(const std::string& name) {
  const std::string partial = '.' + name + kSuffix;
  return partial.size() <= kMaxNameBytes ? partial : numbered(XXH3_64bits(name.data(), name.size()), kSuffix);
}

/// Whether `name` is that of the file `opened`. While its lock is held, no other copy changes that: a copy that needs
/// the name waits for the lock.
bool has_name(const struct stat& opened, int folder, const std::string& name) {
  struct stat named = {};
  return ::fstatat(folder, name.c_str(), &named, AT_SYMLINK_NOFOLLOW) == 0 && opened.st_ino == named.st_ino &&
         opened.st_dev == named.st_dev;
}
bool has_name(int fd, int folder, const std::string& name) {
  struct stat opened = {};
  return ::fstat(fd, &opened) == 0 && has_name(opened, folder, name);
}

/// Takes the lock that the writer of a partial file holds. Some file systems have no locks (Lustre without its option
/// "flock", NFS without a lock manager); there copies work without them.
enum class Lock : std::uint8_t { kTaken, kHeldByOther, kNone };
Lock take_lock(int fd) {
  if (retry_interrupted([&] { return ::flock(fd, LOCK_EX | LOCK_NB); }) == 0) return Lock::kTaken;
  return last_system_error() == std::errc::operation_would_block ? Lock::kHeldByOther : Lock::kNone;
}
/// Returns  false: another copy holds the lock
bool lock(int fd) {
  return take_lock(fd) != Lock::kHeldByOther;
}

/// NFS locks a file exclusively only if it is open for writing. A read-only file (it was complete) is opened for
/// reading.
UniqueFd open_left(int folder, const std::string& partial) {
  constexpr int kFlags = O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
  UniqueFd writable(::openat(folder, partial.c_str(), O_RDWR | kFlags));
  return writable ? std::move(writable) : UniqueFd(::openat(folder, partial.c_str(), O_RDONLY | kFlags));
}

std::string unforeseen_name(const char* suffix) {
  std::random_device random;
  return numbered(std::uint64_t{random()} << 32 | random(), suffix);
}

/// Another user's file is not used: its lock may be held for ever, and the file may change after it gets its name.
bool is_anothers(const struct stat& left) {
  return left.st_uid != ::geteuid();
}

/// Whether another user may hold its lock for ever. Then the lock does not mean that a copy is running.
bool may_be_locked_by_others(const struct stat& left) {
  return (left.st_mode & 0077) != 0;
}

/// The state of the name of an unfinished copy.
enum class Left : std::uint8_t {
  kNothing,
  kAnothers  ///< another user's, or another user may lock it: it is not touched
};

/// Removes the unfinished copy that this user has left. A running copy holds the file's lock, so it is removed only
/// under the lock.
Result<Left> remove_left(int folder, const std::string& partial) {
  struct stat left = {};
  if (::fstatat(folder, partial.c_str(), &left, AT_SYMLINK_NOFOLLOW) != 0) {
    if (last_system_error() == std::errc::no_such_file_or_directory) return Left::kNothing;
    return new_file_failed();
  }
  if (is_anothers(left)) return Left::kAnothers;  // checked before open(): it may be a pipe, or unreadable
  const UniqueFd old = open_left(folder, partial);
  if (!old) {
    const std::error_code why = last_system_error();
    if (why == std::errc::no_such_file_or_directory) return Left::kNothing;
    if (why != std::errc::too_many_symbolic_link_levels) return make_error(why, "");  // a link: unused
  } else if (::fstat(old.get(), &left) != 0) {
    return new_file_failed();
  } else if (is_anothers(left)) {
    return Left::kAnothers;
  } else if (!lock(old.get())) {
    if (may_be_locked_by_others(left)) return Left::kAnothers;
    return busy();
  } else if (!has_name(old.get(), folder, partial)) {
    return Left::kNothing;  // the lock holder has published or removed it, and another file may have the name
  }
  const bool gone = ::unlinkat(folder, partial.c_str(), 0) == 0;
  if (!gone && last_system_error() != std::errc::no_such_file_or_directory) return new_file_failed();
  return Left::kNothing;
}

/// The name `partial` exists. Makes room for a new file, which gets that name or, if another user has it, a new one.
Status make_room(int folder, std::string& partial) {
  const auto left = remove_left(folder, partial);
  if (!left) return left.error();
  if (*left == Left::kAnothers) partial = unforeseen_name(kSuffix);
  return {};
}

/// Gives a name to a file without a name. The name must be unused. The first way works for privileged users, and for
/// others from Linux 6.10 on.
Status link_as(int fd, int folder, const std::string& name) {
  if (::linkat(fd, "", folder, name.c_str(), AT_EMPTY_PATH) == 0) return {};
  if (last_system_error() != std::errc::no_such_file_or_directory) return new_file_failed();
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
  return ::linkat(AT_FDCWD, path.c_str(), folder, name.c_str(), AT_SYMLINK_FOLLOW) == 0 ? Status()
                                                                                        : Status(new_file_failed());
}

/// Renames the file `from` to `to`, which must be unused, in one directory. Not all file systems can do that in one
/// step.
Status rename_unless_there(int folder, const std::string& from, const std::string& to) {
  if (::renameat2(folder, from.c_str(), folder, to.c_str(), RENAME_NOREPLACE) == 0) return {};
  if (last_system_error() != std::errc::invalid_argument) return new_file_failed();
  if (::linkat(folder, from.c_str(), folder, to.c_str(), 0) != 0) return new_file_failed();
  return ::unlinkat(folder, from.c_str(), 0) == 0 ? Status() : Status(new_file_failed());
}

/// Renames `from` to `to`, in one directory, and replaces a file or a link there.
Status rename_over(int folder, const std::string& from, const std::string& to) {
  if (::renameat2(folder, from.c_str(), folder, to.c_str(), RENAME_NOREPLACE) == 0) return {};
  const std::error_code why = last_system_error();
  // Some file systems do not support this flag: EINVAL.
  if (why != std::errc::file_exists && why != std::errc::invalid_argument) return make_error(why, "");
  struct stat there = {};
  if (::fstatat(folder, to.c_str(), &there, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISREG(there.st_mode) &&
      !S_ISLNK(there.st_mode) && !S_ISDIR(there.st_mode)) {
    return make_error(std::make_error_code(std::errc::not_supported),
                      "the existing object with this name is not a file");
  }
  return ::renameat(folder, from.c_str(), folder, to.c_str()) == 0 ? Status() : Status(new_file_failed());
}

}  // namespace

bool is_partial_name(std::string_view name) noexcept {
  return name.starts_with('.') && (name.ends_with(kSuffix) || name.ends_with(kLinkSuffix));
}

Result<NewFile> NewFile::create(int folder, const std::string& name, unsigned mode) {
  if (name.size() > kMaxNameBytes) return make_error(std::make_error_code(std::errc::filename_too_long), "");
  for (int tries = 0; tries < kMaxLocksLost; ++tries) {
    const std::string own = unforeseen_name(kSuffix);
    UniqueFd fd(::openat(folder, own.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode));
    if (!fd) return new_file_failed();
    struct stat made = {};
    Status ready = ::fstat(fd.get(), &made) == 0 ? Status() : Status(new_file_failed());
    NewFile file(folder, name, own, std::move(fd), made);
    if (ready.ok()) ready = file.close_to_others();
    const bool is_locked = ready.ok() && lock(file.fd());
    if (is_locked) ready = file.take_partial_name();
    if (is_locked && ready.ok()) return file;
    ::unlinkat(folder, own.c_str(), 0);
    if (!ready.ok()) return ready.error();
    // Another user has opened and locked it before close_to_others(), and may keep the lock for ever.
  }
  return busy();
}

/// Gives the locked file the name at which other copies look for an unfinished one. Not before it is locked: without
/// its lock they would consider it abandoned, and remove it by its name. On file systems that cannot do this it keeps
/// its own name.
Status NewFile::take_partial_name() {
  for (std::string partial = partial_name(name_);;) {
    const Status moved = rename_unless_there(folder_, partial_, partial);
    if (moved.ok()) partial_ = partial;
    if (moved.code() != std::errc::file_exists) return {};
    if (Status room = make_room(folder_, partial); !room.ok()) return room;
  }
}

Status NewFile::close_to_others() {
  const unsigned own = mode() & 0700;
  if (own != mode() && ::fchmod(fd_.get(), own) != 0) return new_file_failed();
  identity_.st_mode = (identity_.st_mode & ~07777U) | own;
  return {};
}

Result<NewFile> NewFile::create_unnamed(int folder, const std::string& name, unsigned mode, bool new_folder) {
  if (name.size() > kMaxNameBytes) return make_error(std::make_error_code(std::errc::filename_too_long), "");
  static const bool linkable = ::access("/proc/self/fd", X_OK) == 0;
  UniqueFd fd(linkable ? ::openat(folder, ".", O_RDWR | O_TMPFILE | O_CLOEXEC, mode) : -1);
  // File systems report a missing feature by different errors. If the error has another cause, create() meets it, too.
  if (!fd) return create(folder, name, mode);
  std::string partial = partial_name(name);
  if (!new_folder) {
    if (Status room = make_room(folder, partial); !room.ok()) return room.error();
  }
  struct stat made = {};
  if (::fstat(fd.get(), &made) != 0) return new_file_failed();
  return NewFile(folder, name, std::move(partial), std::move(fd), made);
}

Result<LeftFile> NewFile::reopen(int folder, const std::string& name) {
  std::string partial = partial_name(name);
  UniqueFd fd(::openat(folder, partial.c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!fd) return new_file_failed();
  const auto nothing = [] { return make_error(std::make_error_code(std::errc::no_such_file_or_directory), ""); };
  struct stat is = {};
  if (::fstat(fd.get(), &is) != 0) return new_file_failed();
  if (is_anothers(is)) return nothing();
  const Lock locked = take_lock(fd.get());
  if (locked == Lock::kHeldByOther) {
    if (may_be_locked_by_others(is)) return nothing();
    return busy();
  }
  // Checked again under the lock, so that no other copy writes or removes it.
  const bool whole = ::fstat(fd.get(), &is) == 0 && S_ISREG(is.st_mode) && is.st_nlink == 1;
  if (!whole || !has_name(is, folder, partial)) return nothing();
  if (locked == Lock::kNone) return LeftFile{.file = NewFile(), .base = std::move(fd)};
  return LeftFile{.file = NewFile(folder, name, std::move(partial), std::move(fd), is), .base = UniqueFd()};
}

/// The name exists: from now on the file is like one from create().
Status NewFile::link_beside() {
  if (!lock(fd_.get())) return busy();
  for (;;) {
    const Status linked = link_as(fd_.get(), folder_, partial_);
    if (linked.ok()) break;
    if (linked.code() != std::errc::file_exists) return linked;
    if (Status room = make_room(folder_, partial_); !room.ok()) return room;
  }
  if (::fstat(fd_.get(), &identity_) == 0) return {};
  const Error why = new_file_failed();
  ::unlinkat(folder_, partial_.c_str(), 0);
  return why;
}

Status NewFile::publish() {
  if (identity_.st_nlink == 0) {
    const Status linked = link_as(fd_.get(), folder_, name_);
    if (linked.ok()) fd_.reset();
    if (linked.code() != std::errc::file_exists) return linked;
    if (Status beside = link_beside(); !beside.ok()) return beside;
  }
  if (!has_name(identity_, folder_, partial_)) {
    return make_error(std::make_error_code(std::errc::no_such_file_or_directory),
                      "another process has removed it while it was written");
  }
  Status renamed = rename_over(folder_, partial_, name_);
  if (renamed.ok()) fd_.reset();
  return renamed;
}

void NewFile::discard() noexcept {
  if (!fd_) return;
  if (identity_.st_nlink > 0 && has_name(identity_, folder_, partial_)) ::unlinkat(folder_, partial_.c_str(), 0);
  fd_.reset();
}

Status publish_link(int folder, const std::string& name, const std::string& target, const timespec* times) {
  // It needs a name of its own: links have no locks by which others could tell whether it is in use.
  const std::string partial = unforeseen_name(kLinkSuffix);
  if (::symlinkat(target.c_str(), folder, partial.c_str()) != 0) return new_file_failed();
  if (times != nullptr) (void)::utimensat(folder, partial.c_str(), times, AT_SYMLINK_NOFOLLOW);
  Status named = rename_over(folder, partial, name);
  if (!named.ok()) ::unlinkat(folder, partial.c_str(), 0);
  return named;
}

}  // namespace rdmacomm::copying
