// The functions of the C library that open files, for files of the view.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "softdev/preload/files/libc_next.h"
#include "softdev/preload/files/view.h"

namespace {

using rdmacomm::softdev::preload::kDeviceNodes;
using rdmacomm::softdev::preload::may_open_in_view;
using rdmacomm::softdev::preload::Next;
using rdmacomm::softdev::preload::open_device_node;
using rdmacomm::softdev::preload::PlacedPath;
using rdmacomm::softdev::preload::with_place;

using Open = int(const char*, int, ...);
using OpenAt = int(int, const char*, int, ...);
using Checked = int(const char*, int);
using CheckedAt = int(int, const char*, int);
using Create = int(const char*, mode_t);
using OpenStream = FILE*(const char*, const char*);
using ReopenStream = FILE*(const char*, const char*, FILE*);

constinit Next<Open> next_open{"open"};
constinit Next<Open> next_open64{"open64"};
constinit Next<OpenAt> next_openat{"openat"};
constinit Next<OpenAt> next_openat64{"openat64"};
constinit Next<Checked> next_open_2{"__open_2"};
constinit Next<Checked> next_open64_2{"__open64_2"};
constinit Next<CheckedAt> next_openat_2{"__openat_2"};
constinit Next<CheckedAt> next_openat64_2{"__openat64_2"};
constinit Next<Create> next_creat{"creat"};
constinit Next<Create> next_creat64{"creat64"};
constinit Next<OpenStream> next_fopen{"fopen"};
constinit Next<OpenStream> next_fopen64{"fopen64"};
constinit Next<ReopenStream> next_freopen{"freopen"};
constinit Next<ReopenStream> next_freopen64{"freopen64"};

/// Programs open files in signal handlers.
[[gnu::constructor]] void find_open_functions() noexcept {
  for (auto* const next : {&next_open, &next_open64}) (void)next->get();
  for (auto* const next : {&next_openat, &next_openat64}) (void)next->get();
  for (auto* const next : {&next_open_2, &next_open64_2}) (void)next->get();
  for (auto* const next : {&next_openat_2, &next_openat64_2}) (void)next->get();
}

bool has_mode(int flags) noexcept {
  return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE;
}

template <typename Result>
Result refuse(Result result, int error) noexcept {
  errno = error;
  return result;
}

/// Opens a path that may be in the view. The files of the view cannot be changed. A device node can be opened for
/// writing, although nothing serves writes: libibverbs has the verbs of soft devices.
template <typename Call>
int open_placed(int folder, const char* path, int flags, Call call) {
  return with_place(folder, path, [&](const PlacedPath& placed) {
    placed.refresh_counter();
    if (placed.node() != nullptr) return open_device_node(*placed.node(), flags);
    if (!placed.is_in_view()) return call(placed.folder(), placed.path(), flags);
    const bool is_node = placed.name().starts_with(kDeviceNodes);
    if ((flags & O_ACCMODE) != O_RDONLY && !is_node) return refuse(-1, EACCES);
    return call(AT_FDCWD, placed.path(), flags & ~(O_ACCMODE | O_CREAT | O_EXCL | O_TRUNC | O_APPEND));
  });
}

template <typename Call>
FILE* open_stream(const char* path, const char* mode, Call call) {
  return with_place(AT_FDCWD, path, [&](const PlacedPath& placed) -> FILE* {
    placed.refresh_counter();
    const bool writes = std::strpbrk(mode, "wa+") != nullptr;
    return placed.is_in_view() && writes ? refuse<FILE*>(nullptr, EACCES) : call(placed.path());
  });
}

}  // namespace

/// Declares `mode`, the argument after `flags` if there is one.
#define RDMACOMM_TAKE_MODE(flags) \
  mode_t mode = 0;                \
  if (has_mode(flags)) {          \
    va_list rest;                 \
    va_start(rest, flags);        \
    mode = va_arg(rest, mode_t);  \
    va_end(rest);                 \
  }

#define RDMACOMM_OPEN(NAME)                                                                                           \
  int NAME(const char* path, int flags, ...) {                                                                        \
    RDMACOMM_TAKE_MODE(flags)                                                                                         \
    if (!may_open_in_view(path)) [[likely]]                                                                           \
      return next_##NAME.get()(path, flags, mode);                                                                    \
    return open_placed(AT_FDCWD, path, flags,                                                                         \
                       [&](int, const char* place, int allowed) { return next_##NAME.get()(place, allowed, mode); }); \
  }

#define RDMACOMM_OPEN_AT(NAME)                                                               \
  int NAME(int folder, const char* path, int flags, ...) {                                   \
    RDMACOMM_TAKE_MODE(flags)                                                                \
    if (!may_open_in_view(path)) [[likely]]                                                  \
      return next_##NAME.get()(folder, path, flags, mode);                                   \
    return open_placed(folder, path, flags, [&](int start, const char* place, int allowed) { \
      return next_##NAME.get()(start, place, allowed, mode);                                 \
    });                                                                                      \
  }

// For programs that are compiled with _FORTIFY_SOURCE: without a mode.
#define RDMACOMM_OPEN_2(NAME)                                                                                       \
  int __##NAME##_2(const char* path, int flags) {                                                                   \
    if (!may_open_in_view(path)) [[likely]]                                                                         \
      return next_##NAME##_2.get()(path, flags);                                                                    \
    return open_placed(AT_FDCWD, path, flags,                                                                       \
                       [&](int, const char* place, int allowed) { return next_##NAME##_2.get()(place, allowed); }); \
  }
#define RDMACOMM_OPEN_AT_2(NAME)                                                             \
  int __##NAME##_2(int folder, const char* path, int flags) {                                \
    if (!may_open_in_view(path)) [[likely]]                                                  \
      return next_##NAME##_2.get()(folder, path, flags);                                     \
    return open_placed(folder, path, flags, [&](int start, const char* place, int allowed) { \
      return next_##NAME##_2.get()(start, place, allowed);                                   \
    });                                                                                      \
  }

#define RDMACOMM_CREATE(NAME, OPEN)                        \
  int NAME(const char* path, mode_t mode) {                \
    if (!may_open_in_view(path)) [[likely]]                \
      return next_##NAME.get()(path, mode);                \
    return OPEN(path, O_CREAT | O_WRONLY | O_TRUNC, mode); \
  }

#define RDMACOMM_OPEN_STREAM(NAME)                                                                     \
  FILE* NAME(const char* path, const char* mode) {                                                     \
    if (!may_open_in_view(path)) [[likely]]                                                            \
      return next_##NAME.get()(path, mode);                                                            \
    return open_stream(path, mode, [&](const char* place) { return next_##NAME.get()(place, mode); }); \
  }

#define RDMACOMM_REOPEN_STREAM(NAME)                                                                           \
  FILE* NAME(const char* path, const char* mode, FILE* stream) {                                               \
    if (!may_open_in_view(path)) [[likely]]                                                                    \
      return next_##NAME.get()(path, mode, stream);                                                            \
    return open_stream(path, mode, [&](const char* place) { return next_##NAME.get()(place, mode, stream); }); \
  }

extern "C" {

// Declared by headers only for programs with _FORTIFY_SOURCE.
int __open_2(const char* path, int flags);
int __open64_2(const char* path, int flags);
int __openat_2(int folder, const char* path, int flags);
int __openat64_2(int folder, const char* path, int flags);

RDMACOMM_OPEN(open)
RDMACOMM_OPEN(open64)
RDMACOMM_OPEN_AT(openat)
RDMACOMM_OPEN_AT(openat64)
RDMACOMM_OPEN_2(open)
RDMACOMM_OPEN_2(open64)
RDMACOMM_OPEN_AT_2(openat)
RDMACOMM_OPEN_AT_2(openat64)
RDMACOMM_CREATE(creat, open)
RDMACOMM_CREATE(creat64, open64)
RDMACOMM_OPEN_STREAM(fopen)
RDMACOMM_OPEN_STREAM(fopen64)
RDMACOMM_REOPEN_STREAM(freopen)
RDMACOMM_REOPEN_STREAM(freopen64)
}
