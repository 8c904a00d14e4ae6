// The functions of the C library that list and walk folders and follow links, for files of the view.
#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "softdev/preload/files/libc_next.h"
#include "softdev/preload/files/view.h"

namespace {

using rdmacomm::softdev::preload::may_be_in_view;
using rdmacomm::softdev::preload::Next;
using rdmacomm::softdev::preload::PlacedPath;
using rdmacomm::softdev::preload::relative_may_be_in_view;
using rdmacomm::softdev::preload::with_place;
using rdmacomm::softdev::preload::without_tree;

static_assert(sizeof(dirent) == sizeof(dirent64), "both names have one layout on 64-bit systems");

using Filter = int (*)(const dirent*);
using Order = int (*)(const dirent**, const dirent**);
using Filter64 = int (*)(const dirent64*);
using Order64 = int (*)(const dirent64**, const dirent64**);
using Visit = int (*)(const char*, const struct stat*, int);
using VisitMore = int (*)(const char*, const struct stat*, int, FTW*);
using Visit64 = int (*)(const char*, const struct stat64*, int);
using VisitMore64 = int (*)(const char*, const struct stat64*, int, FTW*);

constinit Next<ssize_t(const char*, char*, std::size_t)> next_readlink{"readlink"};
constinit Next<ssize_t(int, const char*, char*, std::size_t)> next_readlinkat{"readlinkat"};
constinit Next<ssize_t(const char*, char*, std::size_t, std::size_t)> next_readlink_chk{"__readlink_chk"};
constinit Next<ssize_t(int, const char*, char*, std::size_t, std::size_t)> next_readlinkat_chk{"__readlinkat_chk"};
constinit Next<char*(const char*, char*)> next_realpath{"realpath"};
constinit Next<char*(const char*, char*, std::size_t)> next_realpath_chk{"__realpath_chk"};
constinit Next<int(const char*)> next_chdir{"chdir"};
constinit Next<char*(char*, std::size_t)> next_getcwd{"getcwd"};
constinit Next<char*(char*, std::size_t, std::size_t)> next_getcwd_chk{"__getcwd_chk"};
constinit Next<DIR*(const char*)> next_opendir{"opendir"};
constinit Next<dirent*(DIR*)> next_readdir{"readdir"};
constinit Next<dirent64*(DIR*)> next_readdir64{"readdir64"};
constinit Next<int(const char*, dirent***, Filter, Order)> next_scandir{"scandir"};
constinit Next<int(const char*, dirent64***, Filter64, Order64)> next_scandir64{"scandir64"};
constinit Next<int(int, const char*, dirent***, Filter, Order)> next_scandirat{"scandirat"};
constinit Next<int(int, const char*, dirent64***, Filter64, Order64)> next_scandirat64{"scandirat64"};
constinit Next<int(const char*, int, int (*)(const char*, int), glob_t*)> next_glob{"glob"};
constinit Next<int(const char*, int, int (*)(const char*, int), glob64_t*)> next_glob64{"glob64"};
constinit Next<int(const char*, Visit, int)> next_ftw{"ftw"};
constinit Next<int(const char*, Visit64, int)> next_ftw64{"ftw64"};
constinit Next<int(const char*, VisitMore, int, int)> next_nftw{"nftw"};
constinit Next<int(const char*, VisitMore64, int, int)> next_nftw64{"nftw64"};

/// Programs call these functions in signal handlers.
[[gnu::constructor]] void find_folder_functions() noexcept {
  (void)next_readlink.get();
  (void)next_readlinkat.get();
  (void)next_chdir.get();
}

template <typename Call>
auto at_place(const char* path, Call call) {
  return with_place(AT_FDCWD, path, [&](const PlacedPath& placed) { return call(placed.path()); });
}
template <typename Call>
auto at_place(int folder, const char* path, Call call) {
  return with_place(folder, path, [&](const PlacedPath& placed) { return call(placed.folder(), placed.path()); });
}

/// Removes the root of a tree from a result.
char* shown(char* path) noexcept {
  if (path == nullptr) return nullptr;
  const char* const rest = without_tree(path);
  if (rest != path) std::memmove(path, rest, std::strlen(rest) + 1);
  return path;
}

/// A listing reports the kind of the files that stand for character devices.
template <typename Entry>
Entry* show_kind(DIR* folder, Entry* entry) noexcept {
  if (entry == nullptr || entry->d_type != DT_REG) return entry;
  if (std::strncmp(entry->d_name, "uverbs", 6) != 0 && std::strcmp(entry->d_name, "rdma_cm") != 0) return entry;
  const int error = errno;
  struct stat found {};
  if (fstatat(dirfd(folder), entry->d_name, &found, AT_SYMLINK_NOFOLLOW) == 0 && S_ISCHR(found.st_mode)) {
    entry->d_type = DT_CHR;
  }
  errno = error;
  return entry;
}

/// Calls `call` with functions that see the view, which glob() otherwise does not call.
/// readdir  readdir() or readdir64(), according to the type of `to`
template <typename Status, typename Glob, typename ReadFolder, typename Call>
int glob_in_view(int flags, Glob* to, ReadFolder readdir_of_type, Call call) {
  if ((flags & GLOB_ALTDIRFUNC) != 0) return call(flags);
  const Glob saved = *to;
  to->gl_opendir = [](const char* path) -> void* { return opendir(path); };
  to->gl_closedir = [](void* folder) { closedir(static_cast<DIR*>(folder)); };
  to->gl_readdir = readdir_of_type;
  to->gl_stat = [](const char* path, Status* found) { return stat(path, reinterpret_cast<struct stat*>(found)); };
  to->gl_lstat = [](const char* path, Status* found) { return lstat(path, reinterpret_cast<struct stat*>(found)); };
  const int result = call(flags | GLOB_ALTDIRFUNC);
  to->gl_opendir = saved.gl_opendir;
  to->gl_closedir = saved.gl_closedir;
  to->gl_readdir = saved.gl_readdir;
  to->gl_stat = saved.gl_stat;
  to->gl_lstat = saved.gl_lstat;
  to->gl_flags &= ~GLOB_ALTDIRFUNC;
  return result;
}

FTW without_root(const FTW& place, std::size_t root_length) noexcept {
  return {place.base - static_cast<int>(root_length), place.level};
}

/// The walk of this thread over a folder of the view. The program's function gets paths without the tree's root, and
/// attributes as stat() reports them. `More` is FTW* for nftw(), nothing for ftw().
template <typename Status, typename... More>
class Walk {
 public:
  using Function = int (*)(const char*, const Status*, int, More...);

  template <typename Call>
  static int run(const char* path, Function function, Call call) {
    return with_place(AT_FDCWD, path, [&](const PlacedPath& placed) {
      if (!placed.is_in_view()) return call(placed.path(), function);
      Walk own{function, placed.root_length(), current()};
      current() = &own;
      const int result = call(placed.path(), Function{visit});
      current() = own.outer_;
      return result;
    });
  }

 private:
  Walk(Function function, std::size_t root_length, Walk* outer) noexcept
      : function_(function), root_length_(root_length), outer_(outer) {}

  static Walk*& current() noexcept {
    static thread_local Walk* walk = nullptr;
    return walk;
  }
  static int visit(const char* path, const Status* found, int kind, More... more) {
    const Walk& walk = *current();
    Status status = *found;
    if (S_ISREG(status.st_mode)) (void)lstat(path, reinterpret_cast<struct stat*>(&status));
    const char* const name = path + walk.root_length_;
    if constexpr (sizeof...(More) == 0) {
      return walk.function_(name, &status, kind);
    } else {
      FTW place = without_root(*more..., walk.root_length_);
      return walk.function_(name, &status, kind, &place);
    }
  }

  const Function function_;
  const std::size_t root_length_;
  Walk* const outer_;
};

}  // namespace

extern "C" {

// Declared by headers only for programs with _FORTIFY_SOURCE.
ssize_t __readlink_chk(const char* path, char* to, std::size_t size, std::size_t room) noexcept;
ssize_t __readlinkat_chk(int folder, const char* path, char* to, std::size_t size, std::size_t room) noexcept;
char* __realpath_chk(const char* path, char* to, std::size_t room) noexcept;
char* __getcwd_chk(char* to, std::size_t size, std::size_t room) noexcept;

ssize_t readlink(const char* path, char* to, std::size_t size) noexcept {
  if (!may_be_in_view(path)) [[likely]]
    return next_readlink.get()(path, to, size);
  return at_place(path, [=](const char* place) { return next_readlink.get()(place, to, size); });
}
ssize_t __readlink_chk(const char* path, char* to, std::size_t size, std::size_t room) noexcept {
  if (!may_be_in_view(path)) [[likely]]
    return next_readlink_chk.get()(path, to, size, room);
  return at_place(path, [=](const char* place) { return next_readlink_chk.get()(place, to, size, room); });
}
ssize_t readlinkat(int folder, const char* path, char* to, std::size_t size) noexcept {
  if (!may_be_in_view(path)) [[likely]]
    return next_readlinkat.get()(folder, path, to, size);
  return at_place(folder, path,
                  [=](int start, const char* place) { return next_readlinkat.get()(start, place, to, size); });
}
ssize_t __readlinkat_chk(int folder, const char* path, char* to, std::size_t size, std::size_t room) noexcept {
  if (!may_be_in_view(path)) [[likely]]
    return next_readlinkat_chk.get()(folder, path, to, size, room);
  return at_place(folder, path, [=](int start, const char* place) {
    return next_readlinkat_chk.get()(start, place, to, size, room);
  });
}

char* realpath(const char* path, char* to) noexcept {
  if (!may_be_in_view(path)) [[likely]]
    return shown(next_realpath.get()(path, to));
  return shown(at_place(path, [=](const char* place) { return next_realpath.get()(place, to); }));
}
char* __realpath_chk(const char* path, char* to, std::size_t room) noexcept {
  if (!may_be_in_view(path)) [[likely]]
    return shown(next_realpath_chk.get()(path, to, room));
  return shown(at_place(path, [=](const char* place) { return next_realpath_chk.get()(place, to, room); }));
}
char* canonicalize_file_name(const char* path) noexcept {
  return realpath(path, nullptr);
}

int chdir(const char* path) noexcept {
  if (!may_be_in_view(path)) [[likely]]
    return next_chdir.get()(path);
  return at_place(path, [](const char* place) { return next_chdir.get()(place); });
}
char* getcwd(char* to, std::size_t size) noexcept {
  return shown(next_getcwd.get()(to, size));
}
char* __getcwd_chk(char* to, std::size_t size, std::size_t room) noexcept {
  return shown(next_getcwd_chk.get()(to, size, room));
}

DIR* opendir(const char* path) {
  if (!may_be_in_view(path)) [[likely]]
    return next_opendir.get()(path);
  return at_place(path, [](const char* place) { return next_opendir.get()(place); });
}
dirent* readdir(DIR* folder) {
  return show_kind(folder, next_readdir.get()(folder));
}
dirent64* readdir64(DIR* folder) {
  return show_kind(folder, next_readdir64.get()(folder));
}

int scandir(const char* path, dirent*** names, Filter filter, Order order) {
  if (!may_be_in_view(path)) [[likely]]
    return next_scandir.get()(path, names, filter, order);
  return at_place(path, [=](const char* place) { return next_scandir.get()(place, names, filter, order); });
}
int scandir64(const char* path, dirent64*** names, Filter64 filter, Order64 order) {
  if (!may_be_in_view(path)) [[likely]]
    return next_scandir64.get()(path, names, filter, order);
  return at_place(path, [=](const char* place) { return next_scandir64.get()(place, names, filter, order); });
}
int scandirat(int folder, const char* path, dirent*** names, Filter filter, Order order) {
  if (!may_be_in_view(path)) [[likely]]
    return next_scandirat.get()(folder, path, names, filter, order);
  return at_place(folder, path, [=](int start, const char* place) {
    return next_scandirat.get()(start, place, names, filter, order);
  });
}
int scandirat64(int folder, const char* path, dirent64*** names, Filter64 filter, Order64 order) {
  if (!may_be_in_view(path)) [[likely]]
    return next_scandirat64.get()(folder, path, names, filter, order);
  return at_place(folder, path, [=](int start, const char* place) {
    return next_scandirat64.get()(start, place, names, filter, order);
  });
}

// The name of a folder of the view may be anywhere in a pattern.
int glob(const char* pattern, int flags, int (*failed)(const char*, int), glob_t* to) noexcept(noexcept(globfree(to))) {
  if (pattern == nullptr || !relative_may_be_in_view(pattern)) return next_glob.get()(pattern, flags, failed, to);
  return glob_in_view<struct stat>(
      flags, to, [](void* folder) { return readdir(static_cast<DIR*>(folder)); },
      [=](int with) { return next_glob.get()(pattern, with, failed, to); });
}
int glob64(const char* pattern, int flags, int (*failed)(const char*, int),
           glob64_t* to) noexcept(noexcept(globfree64(to))) {
  if (pattern == nullptr || !relative_may_be_in_view(pattern)) return next_glob64.get()(pattern, flags, failed, to);
  return glob_in_view<struct stat64>(
      flags, to, [](void* folder) { return readdir64(static_cast<DIR*>(folder)); },
      [=](int with) { return next_glob64.get()(pattern, with, failed, to); });
}

int ftw(const char* path, Visit visit, int depth) {
  if (!may_be_in_view(path)) [[likely]]
    return next_ftw.get()(path, visit, depth);
  return Walk<struct stat>::run(
      path, visit, [=](const char* place, Visit function) { return next_ftw.get()(place, function, depth); });
}
int ftw64(const char* path, Visit64 visit, int depth) {
  if (!may_be_in_view(path)) [[likely]]
    return next_ftw64.get()(path, visit, depth);
  return Walk<struct stat64>::run(
      path, visit, [=](const char* place, Visit64 function) { return next_ftw64.get()(place, function, depth); });
}
int nftw(const char* path, VisitMore visit, int depth, int flags) {
  if (!may_be_in_view(path)) [[likely]]
    return next_nftw.get()(path, visit, depth, flags);
  return Walk<struct stat, FTW*>::run(path, visit, [=](const char* place, VisitMore function) {
    return next_nftw.get()(place, function, depth, flags);
  });
}
int nftw64(const char* path, VisitMore64 visit, int depth, int flags) {
  if (!may_be_in_view(path)) [[likely]]
    return next_nftw64.get()(path, visit, depth, flags);
  return Walk<struct stat64, FTW*>::run(path, visit, [=](const char* place, VisitMore64 function) {
    return next_nftw64.get()(place, function, depth, flags);
  });
}
}
