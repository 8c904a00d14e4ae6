// The functions of the C library on descriptors that device nodes of this library need (device_node.h), and the end of
// the process.
#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstddef>
#include <cstring>

#include "softdev/common/at_exit.h"
#include "softdev/preload/files/device_node.h"
#include "softdev/preload/files/libc_next.h"
#include "softdev/preload/files/view.h"

namespace {

using rdmacomm::softdev::preload::any_node_is_open;
using rdmacomm::softdev::preload::find_open_node;
using rdmacomm::softdev::preload::forget_node_descriptor;
using rdmacomm::softdev::preload::forget_node_descriptors;
using rdmacomm::softdev::preload::leave_view;
using rdmacomm::softdev::preload::Next;
using rdmacomm::softdev::preload::OpenNode;
using rdmacomm::softdev::preload::remember_duplicate;

constinit Next<ssize_t(int, const void*, std::size_t)> next_write{"write"};
constinit Next<ssize_t(int, const iovec*, int)> next_writev{"writev"};
constinit Next<int(int)> next_close{"close"};
constinit Next<int(int)> next_dup{"dup"};
constinit Next<int(int, int)> next_dup2{"dup2"};
constinit Next<int(int, int, int)> next_dup3{"dup3"};
constinit Next<int(int, int, ...)> next_fcntl{"fcntl"};
constinit Next<int(int, int, ...)> next_fcntl64{"fcntl64"};
constinit Next<int(unsigned, unsigned, int)> next_close_range{"close_range"};
constinit Next<void(int)> next_closefrom{"closefrom"};

/// Programs call these functions in signal handlers.
[[gnu::constructor]] void find_descriptor_functions() noexcept {
  (void)next_write.get();
  (void)next_writev.get();
  (void)next_close.get();
  (void)next_dup.get();
  (void)next_dup2.get();
  (void)next_dup3.get();
  (void)next_fcntl.get();
  (void)next_fcntl64.get();
}

[[gnu::destructor]] void leave_at_exit() noexcept {
  leave_view();
}

/// Writes parts as one message.
[[gnu::noinline]] ssize_t write_parts(const OpenNode& open, const iovec* parts, int count) {
  constexpr std::size_t kMaxMessage = 4096;  // more than any command of rdma_cm
  std::byte message[kMaxMessage];
  std::size_t length = 0;
  if (count < 0 || count > IOV_MAX) {
    errno = EINVAL;
    return -1;
  }
  for (int i = 0; i < count; ++i) {
    if (parts[i].iov_len > kMaxMessage - length) {
      errno = EINVAL;
      return -1;
    }
    if (parts[i].iov_len != 0) std::memcpy(message + length, parts[i].iov_base, parts[i].iov_len);
    length += parts[i].iov_len;
  }
  return open.node->write(open.known_as, message, length);
}

/// `copy` is the result of a call that has duplicated `descriptor`.
int take_duplicate(int descriptor, int copy) {
  if (copy < 0 || !any_node_is_open() || remember_duplicate(descriptor, copy)) return copy;
  next_close.get()(copy);
  errno = EMFILE;
  return -1;
}

/// dup2() and dup3() close their target.
template <typename Call>
int duplicate_to(int descriptor, int target, Call call) {
  if (!any_node_is_open()) [[likely]]
    return call();
  if (descriptor == target || next_fcntl.get()(descriptor, F_GETFD) < 0) return call();
  forget_node_descriptor(target);
  return take_duplicate(descriptor, call());
}

int control(Next<int(int, int, ...)>& next, int descriptor, int command, void* argument) {
  const int result = next.get()(descriptor, command, argument);
  if (command != F_DUPFD && command != F_DUPFD_CLOEXEC) return result;
  return take_duplicate(descriptor, result);
}

}  // namespace

extern "C" {

ssize_t write(int descriptor, const void* data, std::size_t length) {
  if (any_node_is_open()) [[unlikely]] {
    const OpenNode open = find_open_node(descriptor);
    if (open.node != nullptr) return open.node->write(open.known_as, data, length);
  }
  return next_write.get()(descriptor, data, length);
}
ssize_t writev(int descriptor, const iovec* parts, int count) {
  if (any_node_is_open()) [[unlikely]] {
    const OpenNode open = find_open_node(descriptor);
    if (open.node != nullptr) return write_parts(open, parts, count);
  }
  return next_writev.get()(descriptor, parts, count);
}

int close(int descriptor) {
  if (any_node_is_open()) [[unlikely]]
    forget_node_descriptor(descriptor);
  return next_close.get()(descriptor);
}
// In the C library from 2.34 on.
int close_range(unsigned first, unsigned last, int flags) noexcept {
  constexpr int kSetsFlagOnly = 4;  // CLOSE_RANGE_CLOEXEC
  if (any_node_is_open() && (flags & kSetsFlagOnly) == 0 && first <= last) forget_node_descriptors(first, last);
  auto* const next = next_close_range.get();
  if (next != nullptr) return next(first, last, flags);
#ifdef SYS_close_range
  return static_cast<int>(syscall(SYS_close_range, first, last, flags));
#else
  errno = ENOSYS;
  return -1;
#endif
}
void closefrom(int first) noexcept {
  if (any_node_is_open()) forget_node_descriptors(static_cast<unsigned>(std::max(first, 0)), UINT_MAX);
  auto* const next = next_closefrom.get();
  if (next != nullptr) return next(first);
  for (int descriptor = std::max(first, 0); descriptor < static_cast<int>(sysconf(_SC_OPEN_MAX)); ++descriptor) {
    next_close.get()(descriptor);
  }
}

int dup(int descriptor) noexcept {
  return take_duplicate(descriptor, next_dup.get()(descriptor));
}
int dup2(int descriptor, int target) noexcept {
  return duplicate_to(descriptor, target, [=] { return next_dup2.get()(descriptor, target); });
}
int dup3(int descriptor, int target, int flags) noexcept {
  return duplicate_to(descriptor, target, [=] { return next_dup3.get()(descriptor, target, flags); });
}
int fcntl(int descriptor, int command, ...) {
  va_list rest;
  va_start(rest, command);
  void* const argument = va_arg(rest, void*);
  va_end(rest);
  return control(next_fcntl, descriptor, command, argument);
}
int fcntl64(int descriptor, int command, ...) {
  va_list rest;
  va_start(rest, command);
  void* const argument = va_arg(rest, void*);
  va_end(rest);
  return control(next_fcntl64.get() != nullptr ? next_fcntl64 : next_fcntl, descriptor, command, argument);
}

// Shells end by this function, which does not call the destructors of libraries. Datagrams that have completed must
// leave all the same.
void _exit(int status) {
  rdmacomm::softdev::AtExit::run_all();
  leave_view();
  for (;;) syscall(SYS_exit_group, status);
}
void _Exit(int status) noexcept {
  _exit(status);
}
}
