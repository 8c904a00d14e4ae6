#include "softdev/preload/files/device_node.h"

#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/blocked_signals.h"
#include "base/spin_lock.h"

namespace rdmacomm::softdev::preload {

constinit std::atomic<int> open_node_descriptors{0};

namespace {

constexpr int kMaxDescriptors = 1 << 16;
constexpr std::size_t kMaxNodes = 4;

struct ServedNode {
  std::string_view path;
  DeviceNode* node = nullptr;
};

/// A descriptor of an open node.
struct Descriptor {
  DeviceNode* node = nullptr;  ///< nullptr: unused
  int known_as = -1;
  dev_t file_system = 0;
  ino_t inode = 0;
};

// Static memory: only the pages of used descriptors take memory.
constinit std::array<ServedNode, kMaxNodes> served{};
constinit std::atomic<std::size_t> served_count{0};
constinit std::array<Descriptor, kMaxDescriptors> descriptors{};
constinit SpinLock lock;  // guards `descriptors` and `signals_before_fork`
constinit sigset_t signals_before_fork{};
constinit std::atomic<int> end{0};      // no descriptor from this number on is used
constinit std::atomic<pid_t> owner{0};  // the process that the table is of

/// In a child of vfork(), the table is the parent's, and closing a descriptor is no event for the parent.
bool is_own_process() noexcept {
  return owner.load(std::memory_order_relaxed) == getpid();
}

/// Holds the lock. No signal handler interrupts it: one that forks would wait for the lock.
class Guard {
 public:
  Guard() noexcept { lock.lock(); }
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;
  ~Guard() { lock.unlock(); }

 private:
  const BlockedSignals no_handler_;
};

void lock_for_fork() noexcept {
  const sigset_t before = block_signals();
  lock.lock();
  signals_before_fork = before;
}

void unlock_after_fork() noexcept {
  const sigset_t before = signals_before_fork;
  lock.unlock();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void register_for_fork() noexcept {
  static const int registered = pthread_atfork(lock_for_fork, unlock_after_fork, [] {
    owner = getpid();
    unlock_after_fork();
  });
  (void)registered;
}

/// Not fstat(), which this library replaces, and which needs the lock for nodes.
int system_fstat(int number, struct stat& to) noexcept {
  return static_cast<int>(syscall(SYS_fstat, number, &to));
}

bool is_in_range(int descriptor) noexcept {
  return descriptor >= 0 && descriptor < kMaxDescriptors;
}

/// Without the lock: signal handlers write to descriptors, and may have interrupted the owner of the lock.
bool may_be_node(int descriptor) noexcept {
  return is_in_range(descriptor) &&
         std::atomic_ref(descriptors[static_cast<std::size_t>(descriptor)].node).load(std::memory_order_acquire) !=
             nullptr;
}

/// Needs the lock.
void store(int number, const Descriptor& descriptor) noexcept {
  Descriptor& to = descriptors[static_cast<std::size_t>(number)];
  to.known_as = descriptor.known_as;
  to.file_system = descriptor.file_system;
  to.inode = descriptor.inode;
  std::atomic_ref(to.node).store(descriptor.node, std::memory_order_release);
}

/// Needs the lock. False if the descriptor was closed without a call of this library, and its number used again.
bool is_same_file(int number) noexcept {
  struct stat found {};
  return system_fstat(number, found) == 0 && found.st_dev == descriptors[number].file_system &&
         found.st_ino == descriptors[number].inode;
}

/// The call that a node gets after one of its descriptors was forgotten. It is made without the lock.
struct Notice {
  DeviceNode* node = nullptr;
  int known_as = -1;
  int moved_to = -1;  ///< -1: no duplicate is left

  void report() const noexcept {
    if (node == nullptr) return;
    if (moved_to < 0) return node->closed(known_as);
    if (moved_to != known_as) node->moved(known_as, moved_to);
  }
};

/// Needs the lock.
Notice forget_locked(int number) noexcept {
  const Descriptor gone = descriptors[number];
  if (gone.node == nullptr) return {};
  store(number, {});
  open_node_descriptors.fetch_sub(1, std::memory_order_relaxed);
  Notice notice{gone.node, gone.known_as, -1};
  for (int other = 0; other < end.load(std::memory_order_relaxed); ++other) {
    Descriptor& one = descriptors[other];
    if (one.node == nullptr || one.known_as != gone.known_as) continue;
    if (notice.moved_to < 0) notice.moved_to = number == gone.known_as ? other : gone.known_as;
    one.known_as = notice.moved_to;
  }
  return notice;
}

/// Needs the lock.
void remember_locked(int number, const Descriptor& descriptor) noexcept {
  if (descriptors[number].node == nullptr) open_node_descriptors.fetch_add(1, std::memory_order_relaxed);
  store(number, descriptor);
  if (number >= end.load(std::memory_order_relaxed)) end.store(number + 1, std::memory_order_relaxed);
}

}  // namespace

void serve_device_node(std::string_view path, DeviceNode& node) noexcept {
  const std::size_t count = served_count.load(std::memory_order_relaxed);
  if (count == kMaxNodes || find_device_node(path) != nullptr) return;
  served[count] = {path, &node};
  served_count.store(count + 1, std::memory_order_release);
}

DeviceNode* find_device_node(std::string_view normal_path) noexcept {
  const std::size_t count = served_count.load(std::memory_order_acquire);
  const auto* const found = std::find_if(served.begin(), served.begin() + count,
                                         [&](const ServedNode& each) { return each.path == normal_path; });
  return found == served.begin() + count ? nullptr : found->node;
}

int open_device_node(DeviceNode& node, int flags) noexcept {
  const int number = node.open(flags);
  if (number < 0) return number;
  struct stat found {};
  if (!is_in_range(number) || system_fstat(number, found) != 0) {
    node.closed(number);
    close(number);
    errno = EMFILE;
    return -1;
  }
  register_for_fork();
  const Guard guard;
  owner = getpid();
  // An earlier node may have had this number, if a bare system call closed it. The node knows, because it has just
  // returned the number again.
  (void)forget_locked(number);
  remember_locked(number, {&node, number, found.st_dev, found.st_ino});
  return number;
}

OpenNode find_open_node(int descriptor) noexcept {
  if (!may_be_node(descriptor) || !is_own_process()) return {};
  Notice notice;
  {
    const Guard guard;
    const Descriptor found = descriptors[descriptor];
    if (found.node == nullptr) return {};
    const int error = errno;
    if (is_same_file(descriptor)) return {found.node, found.known_as};
    errno = error;
    notice = forget_locked(descriptor);
  }
  notice.report();
  return {};
}

bool remember_duplicate(int descriptor, int copy) noexcept {
  if (!may_be_node(descriptor) || !is_own_process()) return true;
  Notice notice;
  {
    const Guard guard;
    const Descriptor original = descriptors[descriptor];
    if (original.node == nullptr) return true;
    if (!is_in_range(copy)) return false;
    if (copy != descriptor) notice = forget_locked(copy);
    remember_locked(copy, original);
  }
  notice.report();
  return true;
}

void forget_node_descriptor(int descriptor) noexcept {
  if (!may_be_node(descriptor) || !is_own_process()) return;
  Notice notice;
  {
    const Guard guard;
    notice = forget_locked(descriptor);
  }
  notice.report();
}

void forget_node_descriptors(unsigned first, unsigned last) noexcept {
  const auto beyond = static_cast<unsigned>(end.load(std::memory_order_relaxed));
  for (unsigned number = first; number < beyond && number <= last; ++number) {
    forget_node_descriptor(static_cast<int>(number));
  }
}

}  // namespace rdmacomm::softdev::preload
