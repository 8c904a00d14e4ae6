#include "softdev/preload/files/view.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <optional>
#include <vector>

#include "softdev/preload/wanted_devices.h"

namespace rdmacomm::softdev::preload {
namespace {

/// Number of ViewOff objects of this thread.
[[gnu::tls_model("initial-exec")]] constinit thread_local int switched_off = 0;

/// The state of this process. Never destroyed, because a process may end while other threads open files.
class View {
 public:
  /// nullptr: the process has not looked yet.
  static View* known() noexcept { return instance().load(std::memory_order_acquire); }
  static View& get();

  /// Writes the path of the file in the tree for a normal path. Returns the length of the root in it; 0: the
  /// tree does not have the entry.
  [[nodiscard]] std::size_t place(const NormalPath& name, char* to, std::size_t size);
  [[nodiscard]] bool has(dev_t file_system);
  void leave() noexcept;

 private:
  View();
  static std::atomic<View*>& instance() noexcept {
    static constinit std::atomic<View*> view{nullptr};
    return view;
  }
  /// In a child of vfork(), the memory is the parent's, and the descriptors are not.
  [[nodiscard]] bool is_own_process() const noexcept { return owner_ == getpid(); }
  /// A child must not inherit a lock that another thread holds. If a signal handler has interrupted this thread in a
  /// look at the view, and forks, this thread may hold the lock itself.
  static void lock_for_fork() noexcept {
    if (switched_off == 0) known()->mutex_.lock();
  }
  static void unlock_after_fork() noexcept {
    if (switched_off == 0) known()->mutex_.unlock();
  }
  [[nodiscard]] bool refresh();
  [[nodiscard]] bool join_next(const std::vector<ViewEntry>& entries);

  std::mutex mutex_;
  std::atomic<pid_t> owner_;
  ViewTree trees_[2];  // the current one, and the one before: the program may have open folders in it
  int current_ = 0;
  std::optional<std::uint64_t> state_;  // of the network when the current tree was made
  bool had_connection_manager_ = false;
  std::vector<std::string> own_;  // paths that entry_of() returns, of entries that the tree has
  bool has_ended_ = false;
};

View& View::get() {
  View* view = known();
  if (view != nullptr) return *view;
  auto* const fresh = new View;
  if (instance().compare_exchange_strong(view, fresh, std::memory_order_acq_rel)) {
    (void)pthread_atfork(lock_for_fork, unlock_after_fork, [] {
      known()->owner_ = getpid();
      unlock_after_fork();
    });
    return *fresh;
  }
  delete fresh;
  return *view;
}

View::View() : owner_(getpid()) {}

std::size_t View::place(const NormalPath& name, char* to, std::size_t size) {
  const auto entry = entry_of(name.text());
  if (!entry) return 0;
  std::unique_lock guard(mutex_, std::defer_lock);
  if (is_own_process()) {
    guard.lock();
    if (!refresh()) return 0;
  }
  const ViewTree& tree = trees_[current_];
  if (!tree.is_joined() || !std::ranges::binary_search(own_, *entry)) return 0;
  std::snprintf(to, size, "%s%s", tree.root(), name.c_str());
  return std::strlen(tree.root());
}

bool View::has(dev_t file_system) {
  std::unique_lock guard(mutex_, std::defer_lock);
  if (is_own_process()) {
    guard.lock();
    if (!trees_[current_].is_joined() && !refresh()) return false;
  }
  return std::ranges::any_of(
      trees_, [file_system](const ViewTree& tree) { return tree.is_joined() && tree.file_system() == file_system; });
}

/// Makes the tree agree with the network and the registered nodes. Returns false if there is no tree.
bool View::refresh() {
  if (has_ended_) return false;
  ViewTree& tree = trees_[current_];
  const auto wanted = wanted_devices();
  const std::uint64_t state = network_state(wanted);
  const bool has_connection_manager = find_device_node(kConnectionManagerNode) != nullptr;
  if (state_ == state && had_connection_manager_ == has_connection_manager && tree.is_intact()) return true;
  std::vector<ViewEntry> entries;
  if (describe_view({wanted.begin(), wanted.end()}, read_system_entries(), has_connection_manager, entries) != 0) {
    return tree.is_joined();
  }
  if (!join_next(entries)) return false;
  state_ = state;
  had_connection_manager_ = has_connection_manager;
  own_.clear();
  for (const ViewEntry& entry : entries) {
    const auto top = entry_of(entry.path);
    if (!entry.is_system && top && (own_.empty() || own_.back() != *top)) own_.emplace_back(*top);
  }
  std::ranges::sort(own_);
  return true;
}

bool View::join_next(const std::vector<ViewEntry>& entries) {
  ViewTree& next = trees_[1 - current_];
  next.leave();
  for (const std::string& base : tree_bases()) {
    if (next.join(base, entries) != 0) continue;
    current_ = 1 - current_;
    return true;
  }
  return false;
}

void View::leave() noexcept {
  if (!is_own_process()) return;
  // _exit() may be called in a signal handler that has interrupted refresh().
  const std::unique_lock guard(mutex_, std::try_to_lock);
  if (!guard.owns_lock()) return;
  has_ended_ = true;
  for (ViewTree& tree : trees_) tree.leave();
}

/// The folder that a relative path starts from. Empty: unknown.
std::string_view folder_of(int descriptor, char (&text)[PATH_MAX]) noexcept {
  long length = 0;
  if (descriptor == AT_FDCWD) {
    length = syscall(SYS_getcwd, text, sizeof(text)) - 1;  // counts the zero
  } else {
    char link[64];
    std::snprintf(link, sizeof(link), "/proc/self/fd/%d", descriptor);
    length = syscall(SYS_readlinkat, AT_FDCWD, link, text, sizeof(text));
  }
  return length <= 0 ? std::string_view() : std::string_view(text, static_cast<std::size_t>(length));
}

NormalPath normal_path(int folder, const char* path) noexcept {
  char start[PATH_MAX];
  return path[0] == '/' ? NormalPath({}, path) : NormalPath(folder_of(folder, start), path);
}

/// Keeps errno.
class SavedError {
 public:
  SavedError() noexcept : error_(errno) {}
  SavedError(const SavedError&) = delete;
  SavedError& operator=(const SavedError&) = delete;
  ~SavedError() { errno = error_; }

 private:
  const int error_;
};

}  // namespace

ViewOff::ViewOff() noexcept {
  ++switched_off;
}
ViewOff::~ViewOff() {
  --switched_off;
}

PlacedPath::PlacedPath(int folder, const char* path) noexcept
    : name_(normal_path(folder, path)), given_(path), folder_(folder) {
  placed_[0] = '\0';
  if (switched_off != 0) return;
  const SavedError error;
  const ViewOff off;  // for the calls below
  node_ = find_device_node(name_.text());
  try {
    root_length_ = View::get().place(name_, placed_, sizeof(placed_));
    is_given_ = root_length_ == 0;
  } catch (...) {
    // Without memory, the program sees the system's files.
  }
  // A path such as /sys/class/infiniband/soft0/../../net leads out of the view again. The system cannot resolve it.
  if (!is_given_ || path[0] != '/' || entry_of(name_.text()) || name_.text().empty()) return;
  std::snprintf(placed_, sizeof(placed_), "%s", name_.c_str());
  is_given_ = false;
}

void PlacedPath::refresh_counter() const noexcept {
  // A relative path from a folder of the view leads into the tree itself.
  const char* const path = is_in_view() ? placed_ : name_.c_str();
  const char* const name = is_in_view() ? name_.c_str() : without_tree(path);
  if (switched_off != 0 || name == path || !names_counter(name)) return;
  const SavedError error;
  const ViewOff off;
  try {
    const auto text = counter_text(name, wanted_devices());
    const std::size_t root_length = std::strlen(path) - std::strlen(name);
    if (text) replace_text(path, root_length, *text);
  } catch (...) {
    // Without memory, the program reads an older number.
  }
}

dev_t shown_device(dev_t file_system, mode_t mode, uid_t owner, std::int64_t modified_seconds) noexcept {
  const dev_t device = marked_device(mode, owner, modified_seconds);
  if (device == 0 || switched_off != 0) return 0;
  const SavedError error;
  const ViewOff off;
  try {
    return View::get().has(file_system) ? device : 0;
  } catch (...) {
    return 0;
  }
}

SystemEntries read_system() {
  const ViewOff off;
  return read_system_entries();
}

void leave_view() noexcept {
  View* const view = View::known();
  const ViewOff off;
  if (view != nullptr) view->leave();
}

}  // namespace rdmacomm::softdev::preload
