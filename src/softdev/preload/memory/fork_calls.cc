// fork() and its relatives: a child gets private copies of all memory in the file.
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <new>

#include "softdev/preload/memory/next_function.h"
#include "softdev/preload/memory/own_state.h"
#include "softdev/preload/memory/raw_memory.h"

namespace rdmacomm::softdev::own {
namespace {

/// While it lives, the process may have a few more open descriptors than its limit, if its hard limit allows that. A
/// program that has used them all must be able to fork.
class MoreDescriptors {
 public:
  MoreDescriptors() noexcept {
    constexpr rlim_t kMore = 8;
    is_raised_ = getrlimit(RLIMIT_NOFILE, &before_) == 0 && before_.rlim_cur != RLIM_INFINITY;
    if (!is_raised_) return;
    const rlimit raised{std::min(before_.rlim_cur + kMore, before_.rlim_max), before_.rlim_max};
    is_raised_ = raised.rlim_cur > before_.rlim_cur && setrlimit(RLIMIT_NOFILE, &raised) == 0;
  }
  MoreDescriptors(const MoreDescriptors&) = delete;
  MoreDescriptors& operator=(const MoreDescriptors&) = delete;
  ~MoreDescriptors() {
    if (is_raised_) (void)setrlimit(RLIMIT_NOFILE, &before_);
  }

 private:
  rlimit before_{};
  bool is_raised_ = false;
};

/// The forking thread's state from before the fork until after it. Guarded by the lock of OwnState.
struct Forking {
  bool is_needed;  ///< the file exists
  bool is_inner;   ///< the lock was held already by this thread
  int ends[2];     ///< of a pipe: the child writes to it when it has copied; -1: no descriptor was free
  std::atomic<std::uint32_t>* copied;  ///< without a pipe: not 0 when the child has copied
  sigset_t signals;
};
constinit Forking forking{};

/// Copies may replace the stack of the copying thread. So it works on another stack meanwhile.
alignas(64) constinit std::byte copy_stack[std::size_t{64} << 10];
constinit ucontext_t forked_context{};
constinit ucontext_t copying_context{};
using CopyTask = bool (*)() noexcept;
constinit CopyTask copy_task = nullptr;
constinit bool has_copied = false;
constinit MappedRange stack_pages{};

void run_copy_task() {
  has_copied = copy_task();
}

[[nodiscard]] bool on_copy_stack(CopyTask task) noexcept {
  copy_task = task;
  has_copied = false;
  getcontext(&copying_context);
  copying_context.uc_stack.ss_sp = copy_stack;
  copying_context.uc_stack.ss_size = sizeof(copy_stack);
  copying_context.uc_link = &forked_context;
  makecontext(&copying_context, run_copy_task, 0);
  swapcontext(&forked_context, &copying_context);
  return has_copied;
}

/// Copies the data of a range of the file. Pages without data stay untouched.
bool copy_data(int fd, std::uint64_t offset, std::size_t length, std::byte* to) noexcept {
  const std::uint64_t end = offset + length;
  std::uint64_t at = offset;
  while (at < end) {
    const off_t data = lseek(fd, static_cast<off_t>(at), SEEK_DATA);
    if (data < 0 && errno == ENXIO) return true;
    if (data < 0) return false;
    if (static_cast<std::uint64_t>(data) >= end) return true;
    const off_t hole = lseek(fd, data, SEEK_HOLE);
    if (hole < 0) return false;
    std::uint64_t from = std::max(at, static_cast<std::uint64_t>(data) / kPage * kPage);
    const std::uint64_t until = std::min(end, static_cast<std::uint64_t>(hole));
    while (from < until) {
      const ssize_t count = pread(fd, to + (from - offset), until - from, static_cast<off_t>(from));
      if (count <= 0) return false;
      from += static_cast<std::uint64_t>(count);
    }
    at = std::max(until, at + 1);
  }
  return true;
}

/// Copies mapped memory. Pages of zeroes stay untouched.
void copy_mapped(std::byte* to, const std::byte* from, std::size_t length) noexcept {
  for (std::size_t at = 0; at < length; at += kPage) {
    // The first byte, and each byte equals the next one.
    const bool is_zero = from[at] == std::byte{} && std::memcmp(from + at, from + at + 1, kPage - 1) == 0;
    if (!is_zero) std::memcpy(to + at, from + at, kPage);
  }
}

/// Copies a mapping of the file. If the program has closed the file by the bare system call, reads the memory instead.
/// That costs a page of memory for each page that was never used.
bool copy_range(std::byte* to, const MappedRange& range) noexcept {
  const std::size_t length = range.end - range.start;
  if (const int fd = state.file.fd(); fd >= 0) return copy_data(fd, range.offset, length, to);
  void* const from = pointer(range.start);
  if ((range.protection & PROT_READ) == 0 && mprotect(from, length, PROT_READ) != 0) return false;
  copy_mapped(to, static_cast<const std::byte*>(from), length);
  return true;
}

/// Replaces a mapping of the file by a private copy.
bool make_private(const MappedRange& range) noexcept {
  const std::size_t length = range.end - range.start;
  void* const copy =
      raw_mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (copy == MAP_FAILED) return false;
  if (!copy_range(static_cast<std::byte*>(copy), range)) return false;
  if (range.protection != (PROT_READ | PROT_WRITE) && mprotect(copy, length, range.protection) != 0) return false;
  return raw_mremap(copy, length, length, MREMAP_MAYMOVE | MREMAP_FIXED, pointer(range.start)) != MAP_FAILED;
}

/// Makes all memory of the file in [start, end) private. Only what the kernel knows counts, because the program may
/// unmap and move memory by bare system calls.
bool make_private(std::uintptr_t start, std::uintptr_t end) noexcept {
  const MoreDescriptors more;
  AddressMap map;
  MappedRange range;
  bool found_any = false;
  for (std::uintptr_t at = start; at < end && map.find(at, range); at = range.end) {
    found_any = true;
    if (range.start >= end || !range.shared || !state.file.maps(range)) continue;
    MappedRange part = range;
    part.start = std::max(range.start, start);
    part.end = std::min(range.end, end);
    part.offset += part.start - range.start;
    if (!make_private(part)) return false;
  }
  return found_any;
}

/// The same without /proc, as in a chroot: all that this library has mapped, and the program has not unmapped since.
bool make_recorded_private() noexcept {
  constexpr std::size_t kAddresses = std::size_t{1} << 47;
  bool is_done = true;
  const auto copy = [&is_done](const Range& range) {
    unsigned char is_resident = 0;
    if (mincore(pointer(range.start), kPage, &is_resident) != 0) return;
    MappedRange mapped;
    mapped.start = range.start;
    mapped.end = range.end();
    mapped.offset = range.offset;
    mapped.protection = PROT_READ | PROT_WRITE;
    is_done = is_done && make_private(mapped);
  };
  state.visit(nullptr, kAddresses, copy);
  return is_done;
}

bool make_all_private() noexcept {
  return make_private(0, UINTPTR_MAX) || make_recorded_private();
}

bool make_stack_private() noexcept {
  return make_private(stack_pages.start, stack_pages.end);
}

/// After a fork, parent and child use the same part of the stack at the same time: the frames of fork() and of its
/// handlers. If the program has placed its stack in the file, these pages become private before. The frames of its
/// callers stay as they are while the parent waits.
void separate_stack(const void* frame) noexcept {
  constexpr std::size_t kAbove = 8192;
  constexpr std::size_t kBelow = std::size_t{64} << 10;
  AddressMap map;
  if (!map.find(number(frame), stack_pages) || !stack_pages.shared || !state.file.maps(stack_pages)) return;
  const std::uintptr_t page = number(frame) / kPage * kPage;
  stack_pages.start = std::max(stack_pages.start, page - kBelow);
  stack_pages.end = std::min(stack_pages.end, page + kPage + kAbove);
  (void)on_copy_stack(make_stack_private);
}

/// A number that parent and child share; nullptr: no memory.
std::atomic<std::uint32_t>* shared_flag() noexcept {
  void* const memory = raw_mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return memory == MAP_FAILED ? nullptr : new (memory) std::atomic<std::uint32_t>(0);
}

/// Waits until the child has copied. A child that dies before it has does not wake the parent, so this does not wait
/// for ever.
void wait_without_pipe() noexcept {
  constexpr timespec kPause{0, 1'000'000};
  constexpr int kMostPauses = 10'000;
  for (int i = 0; i < kMostPauses && forking.copied->load(std::memory_order_acquire) == 0; ++i) {
    (void)nanosleep(&kPause, nullptr);
  }
}

void before_fork() noexcept {
  const bool inner = state.owner.load(std::memory_order_relaxed) == pthread_self();
  if (!inner) {
    pthread_mutex_lock(&state.lock);
    state.owner.store(pthread_self(), std::memory_order_relaxed);
  }
  forking.is_inner = inner;
  forking.is_needed = state.file.exists();
  if (!forking.is_needed) return;
  // A signal handler in the child must not change the parent's memory before the copies exist.
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &forking.signals);
  if (!inner) state.blocks.drop_kept();
  separate_stack(__builtin_frame_address(0));
  if (pipe2(forking.ends, O_CLOEXEC) == 0) return;
  const MoreDescriptors more;
  if (pipe2(forking.ends, O_CLOEXEC) == 0) return;
  forking.ends[0] = forking.ends[1] = -1;
  forking.copied = shared_flag();
}

void end_fork() noexcept {
  if (forking.is_needed) pthread_sigmask(SIG_SETMASK, &forking.signals, nullptr);
  if (forking.is_inner) return;
  state.owner.store(pthread_t{}, std::memory_order_relaxed);
  pthread_mutex_unlock(&state.lock);
}

/// The parent must not change its memory before the child has copied it. The pipe ends when the child writes to it or
/// dies, or if there is no child.
void after_fork_in_parent() noexcept {
  const int error = errno;
  if (forking.is_needed && forking.ends[0] >= 0) {
    close(forking.ends[1]);
    char done = 0;
    while (read(forking.ends[0], &done, 1) < 0 && errno == EINTR) {
    }
    close(forking.ends[0]);
  }
  if (forking.is_needed && forking.copied != nullptr) {
    wait_without_pipe();
    raw_munmap(forking.copied, kPage);
    forking.copied = nullptr;
  }
  end_fork();
  errno = error;
}

void after_fork_in_child() noexcept {
  const int error = errno;
  if (forking.is_needed) {
    if (!on_copy_stack(make_all_private)) {
      // No memory is left. A child that shared its parent's memory would destroy it.
      constexpr char kText[] = "softdev-run: a child of fork() cannot get its own copy of the memory; it ends\n";
      (void)!write(STDERR_FILENO, kText, sizeof(kText) - 1);
      _exit(127);
    }
    state.file.forget();
    state.ranges.clear();
    state.blocks.begin_generation();
    if (forking.ends[0] >= 0) {
      const char done = 1;
      (void)!write(forking.ends[1], &done, 1);
      close(forking.ends[0]);
      close(forking.ends[1]);
    }
    if (forking.copied != nullptr) {
      forking.copied->store(1, std::memory_order_release);
      raw_munmap(forking.copied, kPage);
      forking.copied = nullptr;
    }
  }
  end_fork();
  errno = error;
}

/// This constructor runs before those of all other libraries (-z initfirst), so its handlers are the first ones. glibc
/// calls the first handler last before a fork, and first after it. So locks that the program's own handlers hold over a
/// fork are held while the child copies.
[[gnu::constructor]] void add_handlers() noexcept {
  pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

/// The function that a child of clone() runs.
struct CloneStart {
  int (*function)(void*);
  void* argument;
};

int start_clone(void* argument) noexcept {
  after_fork_in_child();
  const CloneStart start = *static_cast<CloneStart*>(argument);
  return start.function(start.argument);
}

}  // namespace
}  // namespace rdmacomm::softdev::own

namespace own = rdmacomm::softdev::own;

/// The top of a stack contains the variables of the thread itself. In a child, the kernel and the C library write them
/// before any handler runs. So such a stack does not stay in the file.
RDMACOMM_REPLACES int pthread_attr_setstack(pthread_attr_t* attributes, void* stack, std::size_t length) noexcept {
  static auto* const next = own::next_function<decltype(::pthread_attr_setstack)>("pthread_attr_setstack");
  const int error = next(attributes, stack, length);
  if (error != 0 || !own::state.file.exists()) return error;
  const own::Locked locked;
  const std::uintptr_t start = own::number(stack) / own::kPage * own::kPage;
  const std::uintptr_t end = own::number(stack) + length;
  if (own::make_private(start, end)) own::forget_mapped(own::pointer(start), end - start);
  return 0;
}

/// The C library calls no handlers in _Fork().
RDMACOMM_REPLACES pid_t _Fork() noexcept {
  static auto* const next = own::next_function<pid_t()>("_Fork");
  if (next == nullptr) {
    errno = ENOSYS;
    return -1;
  }
  own::before_fork();
  const pid_t child = next();
  child == 0 ? own::after_fork_in_child() : own::after_fork_in_parent();
  return child;
}

RDMACOMM_REPLACES int clone(int (*function)(void*), void* stack, int flags, void* argument, ...) noexcept {
  static auto* const next = own::next_function<decltype(::clone)>("clone");
  va_list more;
  va_start(more, argument);
  auto* const parent_number = va_arg(more, pid_t*);
  void* const local_storage = va_arg(more, void*);
  auto* const child_number = va_arg(more, pid_t*);
  va_end(more);
  if ((flags & CLONE_VM) != 0 || function == nullptr) {
    return next(function, stack, flags, argument, parent_number, local_storage, child_number);
  }
  own::before_fork();
  own::CloneStart start{function, argument};
  const int child = next(own::start_clone, stack, flags, &start, parent_number, local_storage, child_number);
  own::after_fork_in_parent();
  return child;
}
