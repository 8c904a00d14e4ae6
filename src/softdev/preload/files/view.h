// view.h - the device files that this process sees: finds the place of a path that a program opens.
#pragma once

#include <sys/stat.h>

#include <climits>
#include <string_view>

#include "softdev/preload/files/device_node.h"
#include "softdev/preload/files/view_counters.h"
#include "softdev/preload/files/view_entries.h"
#include "softdev/preload/files/view_path.h"
#include "softdev/preload/files/view_tree.h"

namespace rdmacomm::softdev::preload {

/// While an object exists, its thread sees the system's own files.
class ViewOff {
 public:
  ViewOff() noexcept;
  ViewOff(const ViewOff&) = delete;
  ViewOff& operator=(const ViewOff&) = delete;
  ~ViewOff();
};

/// A path of a program, and the place where the file is. The tree of files is made, or made again after a change of the
/// network, when a path in the view is looked up. If it cannot be made, or the view is switched off for this thread, or
/// only the system has the file, the place is the given path.
/// Keeps errno. Threads: any.
class PlacedPath {
 public:
  /// folder  descriptor of the folder that a relative path starts from, or AT_FDCWD
  /// path    for which may_be_in_view() is true
  PlacedPath(int folder, const char* path) noexcept;
  PlacedPath(const PlacedPath&) = delete;
  PlacedPath& operator=(const PlacedPath&) = delete;

  /// True if the file is in the tree.
  [[nodiscard]] bool is_in_view() const noexcept { return root_length_ != 0; }
  /// The path for the system's call, and the folder that it starts from.
  [[nodiscard]] const char* path() const noexcept { return is_given_ ? given_ : placed_; }
  [[nodiscard]] int folder() const noexcept { return folder_; }
  /// The program's path in normal form, like "/dev/infiniband/rdma_cm". Empty if it is outside of the view.
  [[nodiscard]] std::string_view name() const noexcept { return name_.text(); }
  /// The served node at the path; nullptr: none.
  [[nodiscard]] DeviceNode* node() const noexcept { return node_; }
  /// Number of characters at the start of path() that a program must not see. 0 if the file is not in the tree.
  [[nodiscard]] std::size_t root_length() const noexcept { return root_length_; }
  /// If the path names a counter of the view, writes its current number into the file. Call before the file is opened.
  void refresh_counter() const noexcept;

 private:
  NormalPath name_;
  const char* const given_;
  const int folder_;
  bool is_given_ = true;
  DeviceNode* node_ = nullptr;
  std::size_t root_length_ = 0;
  char placed_[ViewTree::kMaxBase + 32 + PATH_MAX];
};

/// As may_be_in_view(), for functions that open files. They must also find the counters after a change of the working
/// folder, because their files change.
[[nodiscard]] inline bool may_open_in_view(const char* path) noexcept {
  return may_be_in_view(path) || (path != nullptr && path[0] != '/' && names_counter(path));
}

/// Calls `call(placed)` for a path that may be in the view. Not inline: the path takes 8 KiB of the stack, which other
/// files must not need, because signal handlers have small stacks.
template <typename Call>
[[gnu::noinline]] auto with_place(int folder, const char* path, Call call) {
  const PlacedPath placed(folder, path);
  return call(placed);
}

/// The number of the character device that a file of the tree stands for; 0: none.
[[nodiscard]] dev_t shown_device(dev_t file_system, mode_t mode, uid_t owner, std::int64_t modified_seconds) noexcept;

/// The entries of the system, with the view switched off.
[[nodiscard]] SystemEntries read_system();

/// Ends the use of the view, before the process ends. From then on the process sees the system's own files.
void leave_view() noexcept;

}  // namespace rdmacomm::softdev::preload
