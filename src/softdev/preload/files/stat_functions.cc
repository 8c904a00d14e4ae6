// The functions of the C library that report the attributes of files, for files of the view.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cstddef>

#include "softdev/preload/files/libc_next.h"
#include "softdev/preload/files/view.h"
#include "softdev/preload/files/view_entries.h"

namespace {

using rdmacomm::softdev::preload::any_node_is_open;
using rdmacomm::softdev::preload::connection_manager_device;
using rdmacomm::softdev::preload::find_open_node;
using rdmacomm::softdev::preload::may_be_in_view;
using rdmacomm::softdev::preload::Next;
using rdmacomm::softdev::preload::PlacedPath;
using rdmacomm::softdev::preload::shown_device;
using rdmacomm::softdev::preload::with_place;

static_assert(sizeof(struct stat) == sizeof(struct stat64), "both names have one layout on 64-bit systems");

using StatAt = int(int, const char*, struct stat*, int);
using StatDescriptor = int(int, struct stat*);
using OldStatAt = int(int, int, const char*, struct stat*, int);
using OldStatDescriptor = int(int, int, struct stat*);
using StatX = int(int, const char*, int, unsigned, struct statx*);
using Access = int(const char*, int);
using AccessAt = int(int, const char*, int, int);
using GetAttribute = ssize_t(const char*, const char*, void*, std::size_t);
using ListAttributes = ssize_t(const char*, char*, std::size_t);

// C libraries before 2.33 have other names for these functions, and the system call for them.
constinit Next<StatAt> next_fstatat{"fstatat"};
constinit Next<StatDescriptor> next_fstat{"fstat"};
constinit Next<OldStatAt> next_old_fstatat{"__fxstatat"};
constinit Next<OldStatDescriptor> next_old_fstat{"__fxstat"};
constinit Next<StatX> next_statx{"statx"};
constinit Next<Access> next_access{"access"};
constinit Next<Access> next_euidaccess{"euidaccess"};
constinit Next<Access> next_eaccess{"eaccess"};
constinit Next<AccessAt> next_faccessat{"faccessat"};
constinit Next<GetAttribute> next_getxattr{"getxattr"};
constinit Next<GetAttribute> next_lgetxattr{"lgetxattr"};
constinit Next<ListAttributes> next_listxattr{"listxattr"};
constinit Next<ListAttributes> next_llistxattr{"llistxattr"};

/// Programs call these functions in signal handlers.
[[gnu::constructor]] void find_stat_functions() noexcept {
  (void)next_fstatat.get();
  (void)next_fstat.get();
  (void)next_old_fstatat.get();
  (void)next_old_fstat.get();
  (void)next_access.get();
  (void)next_faccessat.get();
}

/// The functions of the next library under their current names, or under the names that the program has called. They are
/// kept apart: the next library may call its own functions of the other kind by this library's (libfakeroot does).
struct Current {
  static int at(int folder, const char* path, struct stat* to, int flags) {
    if (auto* const next = next_fstatat.get(); next != nullptr) return next(folder, path, to, flags);
    return static_cast<int>(syscall(SYS_newfstatat, folder, path, to, flags));
  }
  static int of(int descriptor, struct stat* to) {
    if (auto* const next = next_fstat.get(); next != nullptr) return next(descriptor, to);
    return static_cast<int>(syscall(SYS_fstat, descriptor, to));
  }
};
struct Old {
  static constexpr int kVersion = 1;
  static int at(int folder, const char* path, struct stat* to, int flags) {
    if (auto* const next = next_old_fstatat.get(); next != nullptr) return next(kVersion, folder, path, to, flags);
    return static_cast<int>(syscall(SYS_newfstatat, folder, path, to, flags));
  }
  static int of(int descriptor, struct stat* to) {
    if (auto* const next = next_old_fstat.get(); next != nullptr) return next(kVersion, descriptor, to);
    return static_cast<int>(syscall(SYS_fstat, descriptor, to));
  }
};

/// Makes a character device of a file that stands for one.
void show_device(struct stat& found, dev_t device) noexcept {
  found.st_mode = S_IFCHR | 0666;
  found.st_rdev = device;
  found.st_size = 0;
  found.st_blocks = 0;
  found.st_mtim = found.st_ctim;
  found.st_atim = found.st_ctim;
}

void show(struct stat& found) noexcept {
  const dev_t device = shown_device(found.st_dev, found.st_mode, found.st_uid, found.st_mtim.tv_sec);
  if (device != 0) show_device(found, device);
}

template <typename Names = Current>
int stat_descriptor(int descriptor, struct stat* to) {
  const int result = Names::of(descriptor, to);
  if (result != 0) return result;
  if (any_node_is_open() && find_open_node(descriptor).node != nullptr) {
    show_device(*to, connection_manager_device());
  } else {
    show(*to);
  }
  return 0;
}

template <typename Names = Current>
int stat_path(int folder, const char* path, struct stat* to, int flags) {
  const bool is_descriptor = path != nullptr && *path == '\0' && (flags & AT_EMPTY_PATH) != 0;
  if (is_descriptor && folder >= 0) return stat_descriptor<Names>(folder, to);
  const int result = !may_be_in_view(path) ? Names::at(folder, path, to, flags)
                                           : with_place(folder, path, [&](const PlacedPath& placed) {
                                               return Names::at(placed.folder(), placed.path(), to, flags);
                                             });
  if (result == 0) show(*to);
  return result;
}

void show_device(struct statx& found, dev_t device) noexcept {
  found.stx_mode = S_IFCHR | 0666;
  found.stx_rdev_major = major(device);
  found.stx_rdev_minor = minor(device);
  found.stx_size = 0;
  found.stx_blocks = 0;
  found.stx_mtime = found.stx_ctime;
  found.stx_atime = found.stx_ctime;
}

/// Has the fields that show() needs.
constexpr unsigned kNeeded = STATX_TYPE | STATX_MODE | STATX_UID | STATX_MTIME | STATX_CTIME;

int statx_path(int folder, const char* path, int flags, unsigned mask, struct statx* to) {
  const auto call = [&](int start, const char* place) {
    return next_statx.get()(start, place, flags, mask | kNeeded, to);
  };
  const int result =
      !may_be_in_view(path)
          ? call(folder, path)
          : with_place(folder, path, [&](const PlacedPath& placed) { return call(placed.folder(), placed.path()); });
  if (result != 0) return result;
  const bool is_descriptor = path != nullptr && *path == '\0';
  if (is_descriptor && any_node_is_open() && find_open_node(folder).node != nullptr) {
    show_device(*to, connection_manager_device());
    return 0;
  }
  const dev_t file_system = makedev(to->stx_dev_major, to->stx_dev_minor);
  const dev_t device = shown_device(file_system, to->stx_mode, to->stx_uid, to->stx_mtime.tv_sec);
  if (device != 0) show_device(*to, device);
  return 0;
}

struct stat* same(struct stat64* to) noexcept {
  return reinterpret_cast<struct stat*>(to);
}

template <typename Call>
auto at_place(const char* path, Call call) {
  return with_place(AT_FDCWD, path, [&](const PlacedPath& placed) { return call(placed.path()); });
}

}  // namespace

extern "C" {

int stat(const char* path, struct stat* to) noexcept {
  return stat_path(AT_FDCWD, path, to, 0);
}
int stat64(const char* path, struct stat64* to) noexcept {
  return stat_path(AT_FDCWD, path, same(to), 0);
}
int lstat(const char* path, struct stat* to) noexcept {
  return stat_path(AT_FDCWD, path, to, AT_SYMLINK_NOFOLLOW);
}
int lstat64(const char* path, struct stat64* to) noexcept {
  return stat_path(AT_FDCWD, path, same(to), AT_SYMLINK_NOFOLLOW);
}
int fstatat(int folder, const char* path, struct stat* to, int flags) noexcept {
  return stat_path(folder, path, to, flags);
}
int fstatat64(int folder, const char* path, struct stat64* to, int flags) noexcept {
  return stat_path(folder, path, same(to), flags);
}
int fstat(int descriptor, struct stat* to) noexcept {
  return stat_descriptor(descriptor, to);
}
int fstat64(int descriptor, struct stat64* to) noexcept {
  return stat_descriptor(descriptor, same(to));
}

// The names in C libraries before 2.33. Programs that were built with these still use them. `version` is that of the
// structure, of which 64-bit systems have one.
int __xstat(int version, const char* path, struct stat* to) noexcept;
int __xstat64(int version, const char* path, struct stat64* to) noexcept;
int __lxstat(int version, const char* path, struct stat* to) noexcept;
int __lxstat64(int version, const char* path, struct stat64* to) noexcept;
int __fxstatat(int version, int folder, const char* path, struct stat* to, int flags) noexcept;
int __fxstatat64(int version, int folder, const char* path, struct stat64* to, int flags) noexcept;
int __fxstat(int version, int descriptor, struct stat* to) noexcept;
int __fxstat64(int version, int descriptor, struct stat64* to) noexcept;

int __xstat(int /*version*/, const char* path, struct stat* to) noexcept {
  return stat_path<Old>(AT_FDCWD, path, to, 0);
}
int __xstat64(int /*version*/, const char* path, struct stat64* to) noexcept {
  return stat_path<Old>(AT_FDCWD, path, same(to), 0);
}
int __lxstat(int /*version*/, const char* path, struct stat* to) noexcept {
  return stat_path<Old>(AT_FDCWD, path, to, AT_SYMLINK_NOFOLLOW);
}
int __lxstat64(int /*version*/, const char* path, struct stat64* to) noexcept {
  return stat_path<Old>(AT_FDCWD, path, same(to), AT_SYMLINK_NOFOLLOW);
}
int __fxstatat(int /*version*/, int folder, const char* path, struct stat* to, int flags) noexcept {
  return stat_path<Old>(folder, path, to, flags);
}
int __fxstatat64(int /*version*/, int folder, const char* path, struct stat64* to, int flags) noexcept {
  return stat_path<Old>(folder, path, same(to), flags);
}
int __fxstat(int /*version*/, int descriptor, struct stat* to) noexcept {
  return stat_descriptor<Old>(descriptor, to);
}
int __fxstat64(int /*version*/, int descriptor, struct stat64* to) noexcept {
  return stat_descriptor<Old>(descriptor, same(to));
}

int statx(int folder, const char* path, int flags, unsigned mask, struct statx* to) noexcept {
  return statx_path(folder, path, flags, mask, to);
}

int access(const char* path, int mode) noexcept {
  if (!may_be_in_view(path)) [[likely]]
    return next_access.get()(path, mode);
  return at_place(path, [=](const char* place) { return next_access.get()(place, mode); });
}
int euidaccess(const char* path, int mode) noexcept {
  if (!may_be_in_view(path)) [[likely]]
    return next_euidaccess.get()(path, mode);
  return at_place(path, [=](const char* place) { return next_euidaccess.get()(place, mode); });
}
int eaccess(const char* path, int mode) noexcept {
  if (!may_be_in_view(path)) [[likely]]
    return next_eaccess.get()(path, mode);
  return at_place(path, [=](const char* place) { return next_eaccess.get()(place, mode); });
}
int faccessat(int folder, const char* path, int mode, int flags) noexcept {
  if (!may_be_in_view(path)) [[likely]]
    return next_faccessat.get()(folder, path, mode, flags);
  return with_place(folder, path, [=](const PlacedPath& placed) {
    return next_faccessat.get()(placed.folder(), placed.path(), mode, flags);
  });
}

// ls -l reads the access control lists of files, which are extended attributes.
ssize_t getxattr(const char* path, const char* name, void* value, std::size_t size) noexcept {
  if (!may_be_in_view(path)) [[likely]]
    return next_getxattr.get()(path, name, value, size);
  return at_place(path, [=](const char* place) { return next_getxattr.get()(place, name, value, size); });
}
ssize_t lgetxattr(const char* path, const char* name, void* value, std::size_t size) noexcept {
  if (!may_be_in_view(path)) [[likely]]
    return next_lgetxattr.get()(path, name, value, size);
  return at_place(path, [=](const char* place) { return next_lgetxattr.get()(place, name, value, size); });
}
ssize_t listxattr(const char* path, char* list, std::size_t size) noexcept {
  if (!may_be_in_view(path)) [[likely]]
    return next_listxattr.get()(path, list, size);
  return at_place(path, [=](const char* place) { return next_listxattr.get()(place, list, size); });
}
ssize_t llistxattr(const char* path, char* list, std::size_t size) noexcept {
  if (!may_be_in_view(path)) [[likely]]
    return next_llistxattr.get()(path, list, size);
  return at_place(path, [=](const char* place) { return next_llistxattr.get()(place, list, size); });
}
}
