// view_tree.h - a folder with the files of the view, shared by the processes of a user, and removed by the last one.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

#include "softdev/preload/files/view_entries.h"

namespace rdmacomm::softdev::preload {

/// A process's use of a tree of files. The entries of the view lie in it under their own paths: ROOT/dev/infiniband and
/// so on. Trees with the same entries have the same name, so processes with the same devices share one tree.
///
/// Life of a tree: a process makes it under a temporary name, and renames it when it is complete. Each process that uses
/// it holds a shared lock (flock(2)) on it. A process that ends takes the exclusive lock if it can. Then no other process
/// uses the tree, and it is removed. A process that makes a tree first removes the trees that crashed processes have
/// left.
///
/// Files are opened by the system's own calls here, and lie outside of the view. Memory is allocated in join() only.
/// Threads: one at a time.
class ViewTree {
 public:
  ViewTree() = default;
  ViewTree(const ViewTree&) = delete;
  ViewTree& operator=(const ViewTree&) = delete;

  /// Joins the processes that use the tree with these entries, or makes it.
  /// base  absolute path of the folder for trees. It is made if it does not exist, with mode 0700.
  /// Returns  0, or an errno value; then the tree is not joined. EACCES: another user could change `base`.
  [[nodiscard]] int join(const std::string& base, const std::vector<ViewEntry>& entries);
  /// True if the tree that was joined still exists, and this process still holds its lock. Programs close descriptors
  /// that they did not open.
  [[nodiscard]] bool is_intact() const noexcept;
  /// Ends the use, and removes the tree if no other process uses it. Calls only functions that are safe in a signal
  /// handler.
  void leave() noexcept;
  /// Forgets the tree without system calls.
  void forget() noexcept { lock_ = -1; }

  [[nodiscard]] bool is_joined() const noexcept { return lock_ >= 0; }
  /// Absolute path of the tree, without a slash at its end.
  [[nodiscard]] const char* root() const noexcept { return root_; }
  /// Device number of the file system that has the tree.
  [[nodiscard]] dev_t file_system() const noexcept { return file_system_; }

  static constexpr std::size_t kMaxBase = 200;

 private:
  char root_[kMaxBase + 32] = {};  // <base>/<name>
  std::size_t base_length_ = 0;
  int lock_ = -1;  // the tree's folder, with the shared lock
  dev_t file_system_ = 0;
  ino_t inode_ = 0;
};

/// The folders in which trees may lie, the best one first: below XDG_RUNTIME_DIR, /dev/shm, TMPDIR and /tmp.
[[nodiscard]] std::vector<std::string> tree_bases();

/// The part of `path` behind a tree's root, for example "/dev/infiniband", if `path` lies in the view of any tree of
/// this user; else `path`. For results of getcwd() and realpath().
[[nodiscard]] const char* without_tree(const char* path) noexcept;

/// Replaces the text of a file of a tree. Processes that have the file open keep the old text. A failure changes nothing.
/// path         absolute
/// root_length  number of characters at its start that name the tree
void replace_text(const char* path, std::size_t root_length, std::string_view text) noexcept;

/// The files that stand for character devices have a mark, because only root can make real ones. Returns the number of
/// the device; 0: the file has no mark.
[[nodiscard]] dev_t marked_device(mode_t mode, uid_t owner, std::int64_t modified_seconds) noexcept;

}  // namespace rdmacomm::softdev::preload
