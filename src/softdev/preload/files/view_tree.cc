#include "softdev/preload/files/view_tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "base/unique_fd.h"
#include "softdev/common/folder_names.h"
#include "softdev/preload/files/view_path.h"
#include "softdev/shared/private_folder.h"

namespace rdmacomm::softdev::preload {
namespace {

constexpr mode_t kMark = S_ISVTX | 0666;
constexpr char kBaseName[] = "/rdmacomm-files-";
constexpr int kNameDigits = 16;
/// Programs use small descriptor numbers for files of their own, and expect the next one to be free.
constexpr int kHighDescriptor = 512;
constexpr int kFolderFlags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;

/// Removes a folder and its content. Returns false: not all of it can be removed.
bool remove_folder(int parent, const char* name, int depth = 0) noexcept {
  constexpr int kMaxDepth = 12;  // deeper than any path of the view
  const int folder = openat(parent, name, kFolderFlags);
  if (folder < 0) return false;
  // Again while something was removed: some file systems skip entries in a listing during which others were removed.
  for (bool removes = true; removes;) {
    removes = false;
    (void)for_each_name(folder, [&](const char* entry, unsigned char type) {
      const bool removed = (type != DT_DIR && unlinkat(folder, entry, 0) == 0) ||
                           (depth < kMaxDepth && remove_folder(folder, entry, depth + 1));
      removes = removes || removed;
    });
  }
  close(folder);
  return unlinkat(parent, name, AT_REMOVEDIR) == 0;
}

bool is_same_file(int descriptor, int folder, const char* name) noexcept {
  struct stat open {};
  struct stat named {};
  return fstat(descriptor, &open) == 0 && fstatat(folder, name, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
         open.st_dev == named.st_dev && open.st_ino == named.st_ino;
}

/// Removes a tree that no process uses.
void remove_if_unused(int base, const char* name) noexcept {
  const int tree = openat(base, name, kFolderFlags);
  if (tree < 0) return;
  if (flock(tree, LOCK_EX | LOCK_NB) == 0 && is_same_file(tree, base, name)) {
    // A new name first, so that another process can make the tree again at once.
    static std::atomic<unsigned> count{0};
    char removed[64];
    std::snprintf(removed, sizeof(removed), ".old-%ld-%u", static_cast<long>(getpid()), count.fetch_add(1));
    (void)remove_folder(base, renameat(base, name, base, removed) == 0 ? removed : name);
  }
  close(tree);
}

/// Returns  0, or an errno value.
int open_base(const std::string& path, UniqueFd& base) {
  if (path.size() > ViewTree::kMaxBase || !path.starts_with('/')) return ENAMETOOLONG;
  base = open_private_folder(path, true);
  return base ? 0 : errno;
}

bool write_all(int file, std::string_view text) noexcept {
  while (!text.empty()) {
    const ssize_t written = write(file, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

/// `path` relative to the tree's folder, which must have its parents.
bool make_parents(int tree, const std::string& path) {
  for (std::size_t slash = path.find('/'); slash != std::string::npos; slash = path.find('/', slash + 1)) {
    if (mkdirat(tree, path.substr(0, slash).c_str(), 0755) != 0 && errno != EEXIST) return false;
  }
  return true;
}

bool make_file(int tree, const char* path, const ViewEntry& entry) {
  const UniqueFd file(openat(tree, path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file || !write_all(file.get(), entry.text)) return false;
  if (entry.kind == ViewEntry::Kind::kFile) return fchmod(file.get(), 0444) == 0;
  // See marked_device().
  const timespec mark{static_cast<time_t>(entry.device), 0};
  const timespec times[] = {mark, mark};
  return fchmod(file.get(), kMark) == 0 && futimens(file.get(), times) == 0;
}

bool make_entry(int tree, const ViewEntry& entry) {
  const std::string path = entry.path.substr(1);
  if (!make_parents(tree, path)) return false;
  switch (entry.kind) {
    case ViewEntry::Kind::kFolder: return mkdirat(tree, path.c_str(), 0755) == 0 || errno == EEXIST;
    case ViewEntry::Kind::kLink: return symlinkat(entry.text.c_str(), tree, path.c_str()) == 0;
    case ViewEntry::Kind::kFile:
    case ViewEntry::Kind::kNode: return make_file(tree, path.c_str(), entry);
  }
  return false;
}

/// Makes a tree named `name`, and returns its folder with the shared lock.
/// Returns  0, or an errno value. EAGAIN: another process has made it, or removed this one: try again.
int make_tree(int base, const char* name, const std::vector<ViewEntry>& entries, UniqueFd& tree) {
  static std::atomic<unsigned> count{0};
  char temporary[64];
  std::snprintf(temporary, sizeof(temporary), ".new-%ld-%u", static_cast<long>(getpid()), count.fetch_add(1));
  // A name that exists is that of a process of another container, or of a crashed process.
  if (mkdirat(base, temporary, 0700) != 0) return errno == EEXIST || errno == ENOENT ? EAGAIN : errno;
  int error = EAGAIN;
  tree.reset(openat(base, temporary, kFolderFlags));
  if (tree && flock(tree.get(), LOCK_SH | LOCK_NB) == 0) {
    error = 0;
    for (const ViewEntry& entry : entries) {
      if (make_entry(tree.get(), entry)) continue;
      error = errno == ENOENT ? EAGAIN : errno;
      break;
    }
    if (error == 0 && renameat(base, temporary, base, name) == 0) return 0;
    if (error == 0) error = EAGAIN;  // another process has made it meanwhile
  }
  tree.reset();
  (void)remove_folder(base, temporary);
  return error;
}

/// Moves a descriptor above the numbers that programs use, if the limit permits it.
void move_up(UniqueFd& descriptor) noexcept {
  const int high = fcntl(descriptor.get(), F_DUPFD_CLOEXEC, kHighDescriptor);
  if (high >= 0) descriptor.reset(high);
}

void remove_leftovers(int base, const char* except) noexcept {
  (void)for_each_name(base, [=](const char* name, unsigned char /*type*/) {
    if (std::strcmp(name, except) != 0) remove_if_unused(base, name);
  });
}

}  // namespace

int ViewTree::join(const std::string& base_path, const std::vector<ViewEntry>& entries) {
  // A process that removes a tree holds its name for a few system calls. If it is stopped just then, this process uses
  // a tree of its own.
  constexpr int kTries = 100;
  constexpr int kSharedTries = 90;
  char name[kNameDigits + 1];
  std::uint64_t hash = hash_of(entries);
  for (int attempt = 0; attempt < kTries; ++attempt) {
    if (attempt >= kSharedTries) hash += static_cast<std::uint64_t>(getpid());
    std::snprintf(name, sizeof(name), "%016llx", static_cast<unsigned long long>(hash));
    UniqueFd base;
    if (const int error = open_base(base_path, base); error == ENOENT) {
      continue;  // removed by another process since mkdir()
    } else if (error != 0) {
      return error;
    }
    UniqueFd tree(openat(base.get(), name, kFolderFlags));
    if (!tree && errno == ENOENT) {
      remove_leftovers(base.get(), name);
      if (const int error = make_tree(base.get(), name, entries, tree); error == EAGAIN) {
        continue;
      } else if (error != 0) {
        return error;
      }
    } else if (!tree || flock(tree.get(), LOCK_SH | LOCK_NB) != 0 || !is_same_file(tree.get(), base.get(), name)) {
      sched_yield();
      continue;
    }
    move_up(tree);
    struct stat found {};
    if (fstat(tree.get(), &found) != 0) return errno;
    base_length_ = base_path.size();
    std::snprintf(root_, sizeof(root_), "%s/%s", base_path.c_str(), name);
    file_system_ = found.st_dev;
    inode_ = found.st_ino;
    lock_ = tree.release();
    return 0;
  }
  return EBUSY;
}

bool ViewTree::is_intact() const noexcept {
  struct stat open {};
  struct stat named {};
  return is_joined() && fstat(lock_, &open) == 0 && open.st_dev == file_system_ && open.st_ino == inode_ &&
         lstat(root_, &named) == 0 && named.st_dev == file_system_ && named.st_ino == inode_;
}

void ViewTree::leave() noexcept {
  if (!is_joined()) return;
  // A child that fork() made may still hold this lock. So a new lock decides, which conflicts with it. If the program
  // has closed the descriptor, its number may belong to a file of the program.
  if (is_intact()) close(lock_);
  lock_ = -1;
  char base_path[kMaxBase + 1];
  std::memcpy(base_path, root_, base_length_);
  base_path[base_length_] = '\0';
  const int base = open(base_path, kFolderFlags);
  if (base < 0) return;
  remove_if_unused(base, root_ + base_length_ + 1);
  close(base);
  (void)rmdir(base_path);  // fails if other trees are in it
}

std::vector<std::string> tree_bases() {
  const std::string name = kBaseName + std::to_string(geteuid());
  std::vector<std::string> bases;
  const auto add = [&](const char* folder) {
    if (folder != nullptr && folder[0] == '/') bases.push_back(folder + name);
  };
  add(::secure_getenv("XDG_RUNTIME_DIR"));
  add("/dev/shm");
  add(::secure_getenv("TMPDIR"));
  add("/tmp");
  return bases;
}

const char* without_tree(const char* path) noexcept {
  const char* const base = std::strstr(path, kBaseName);
  if (base == nullptr) return path;
  const char* rest = base + std::strlen(kBaseName);
  rest += std::strspn(rest, "0123456789");
  if (*rest != '/' || std::strspn(rest + 1, "0123456789abcdef") != kNameDigits) return path;
  rest += 1 + kNameDigits;
  return may_be_in_view(rest) ? rest : path;
}

void replace_text(const char* path, std::size_t root_length, std::string_view text) noexcept {
  static std::atomic<unsigned> count{0};
  char temporary[PATH_MAX];
  const int length = std::snprintf(temporary, sizeof(temporary), "%.*s/.text-%ld-%u", static_cast<int>(root_length),
                                   path, static_cast<long>(getpid()), count.fetch_add(1));
  if (length >= static_cast<int>(sizeof(temporary))) return;
  const UniqueFd file(open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file) return;
  const bool written = write_all(file.get(), text) && fchmod(file.get(), 0444) == 0;
  if (!written || rename(temporary, path) != 0) (void)unlink(temporary);
}

dev_t marked_device(mode_t mode, uid_t owner, std::int64_t modified_seconds) noexcept {
  constexpr unsigned kVerbsMajor = 231;
  constexpr unsigned kMiscMajor = 10;
  if ((mode & (S_IFMT | 07777)) != (S_IFREG | kMark) || owner != geteuid()) return 0;
  const auto device = static_cast<dev_t>(modified_seconds);
  return major(device) == kVerbsMajor || major(device) == kMiscMajor ? device : 0;
}

}  // namespace rdmacomm::softdev::preload
