#include "rdma_copy/new_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <cstdio>
#include <utility>

#include "rdmacomm/base/system_call.h"

namespace rdmacomm::copying {
namespace {

constexpr std::size_t kMostName = 255;
constexpr const char* kSuffix = ".rdma_copy-partial";

Error failed() {
  return make_error(last_system_error(), "");
}

Error busy() {
  return make_error(std::make_error_code(std::errc::text_file_busy), "another copy is writing it");
}

}  // namespace

std::string NewFile::partial_name(const std::string& name) {
  std::string partial = '.' + name + kSuffix;
  if (partial.size() <= kMostName) return partial;
  char hash[20];
  std::snprintf(hash, sizeof(hash), ".%016llx", static_cast<unsigned long long>(XXH3_64bits(name.data(), name.size())));
  return std::string(hash) + kSuffix;
}

Result<NewFile> NewFile::create(int folder, const std::string& name, unsigned mode) {
  if (name.size() > kMostName) return make_error(std::make_error_code(std::errc::filename_too_long), "");
  const std::string partial = partial_name(name);
  for (;;) {
    UniqueFd fd(::openat(folder, partial.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode));
    if (fd) {
      if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) return busy();
      return NewFile(folder, name, std::move(fd));
    }
    if (last_system_error() != std::errc::file_exists) return failed();
    const UniqueFd old(::openat(folder, partial.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    if (old && ::flock(old.get(), LOCK_EX | LOCK_NB) != 0) return busy();
    if (::unlinkat(folder, partial.c_str(), 0) != 0 && last_system_error() != std::errc::no_such_file_or_directory) {
      return failed();
    }
  }
}

Result<NewFile> NewFile::reopen(int folder, const std::string& name) {
  const std::string partial = partial_name(name);
  UniqueFd fd(::openat(folder, partial.c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!fd) return failed();
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) return busy();
  // Who had the lock before may have published it, or removed it.
  struct stat opened = {};
  struct stat named = {};
  const bool same = ::fstat(fd.get(), &opened) == 0 &&
                    ::fstatat(folder, partial.c_str(), &named, AT_SYMLINK_NOFOLLOW) == 0 &&
                    opened.st_ino == named.st_ino && opened.st_dev == named.st_dev;
  if (same && S_ISREG(opened.st_mode) && opened.st_nlink == 1) return NewFile(folder, name, std::move(fd));
  return make_error(std::make_error_code(std::errc::no_such_file_or_directory), "");
}

Status NewFile::publish() {
  Status renamed = rename_over(folder_, partial_name(name_), name_);
  if (renamed.ok()) fd_.reset();
  return renamed;
}

void NewFile::discard() noexcept {
  if (!fd_) return;
  ::unlinkat(folder_, partial_name(name_).c_str(), 0);
  fd_.reset();
}

Status rename_over(int folder, const std::string& from, const std::string& to) {
  if (::renameat2(folder, from.c_str(), folder, to.c_str(), RENAME_NOREPLACE) == 0) return {};
  const std::error_code why = last_system_error();
  // Some file systems cannot do that: EINVAL.
  if (why != std::errc::file_exists && why != std::errc::invalid_argument) return make_error(why, "");
  struct stat there = {};
  if (::fstatat(folder, to.c_str(), &there, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISREG(there.st_mode) &&
      !S_ISLNK(there.st_mode) && !S_ISDIR(there.st_mode)) {
    return make_error(std::make_error_code(std::errc::not_supported), "what has that name is no file");
  }
  return ::renameat(folder, from.c_str(), folder, to.c_str()) == 0 ? Status() : Status(failed());
}

}  // namespace rdmacomm::copying
