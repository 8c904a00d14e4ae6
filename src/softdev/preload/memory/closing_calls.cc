// close() and its relatives: the program cannot close the file's descriptor. To the program its number is not in use.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>

#include "softdev/preload/memory/next_function.h"
#include "softdev/preload/memory/own_state.h"
#include "softdev/preload/memory/raw_memory.h"

namespace rdmacomm::softdev::own {
namespace {

bool is_file(int descriptor) noexcept {
  return state.file.has_number(descriptor) && state.file.fd() == descriptor;
}

/// As close_range(2), but leaves the file's descriptor open.
int close_between(unsigned first, unsigned last, int flags) noexcept {
#ifdef SYS_close_range
  const auto close_part = [flags](unsigned from, unsigned to) {
    return static_cast<int>(raw_call(SYS_close_range, from, to, static_cast<std::uintptr_t>(flags)));
  };
  const int file = state.file.fd();
  const auto own = static_cast<unsigned>(file);
  if (file < 0 || own < first || own > last) return close_part(first, last);
  if (own > first && close_part(first, own - 1) != 0) return -1;
  return own < last ? close_part(own + 1, last) : 0;
#else
  errno = ENOSYS;
  return -1;
#endif
}

/// The program wants `number` for another file. Returns false: it cannot have it.
bool leave_number(int number) noexcept {
  if (!state.file.has_number(number)) return true;
  const Locked locked;
  return state.file.fd() != number || state.file.move();
}

}  // namespace
}  // namespace rdmacomm::softdev::own

namespace own = rdmacomm::softdev::own;

RDMACOMM_REPLACES int close(int descriptor) {
  static auto* const next = own::next_function<decltype(::close)>("close");
  if (!own::is_file(descriptor)) return next(descriptor);
  errno = EBADF;
  return -1;
}

RDMACOMM_REPLACES int close_range(unsigned first, unsigned last, int flags) noexcept {
  return own::close_between(first, last, flags);
}

RDMACOMM_REPLACES void closefrom(int first) noexcept {
  const auto from = static_cast<unsigned>(std::max(first, 0));
  if (own::close_between(from, UINT_MAX, 0) == 0) return;
  for (int descriptor = static_cast<int>(from); descriptor < static_cast<int>(sysconf(_SC_OPEN_MAX)); ++descriptor) {
    ::close(descriptor);
  }
}

RDMACOMM_REPLACES int dup2(int descriptor, int number) noexcept {
  static auto* const next = own::next_function<decltype(::dup2)>("dup2");
  if (own::leave_number(number)) return next(descriptor, number);
  errno = EMFILE;
  return -1;
}

RDMACOMM_REPLACES int dup3(int descriptor, int number, int flags) noexcept {
  static auto* const next = own::next_function<decltype(::dup3)>("dup3");
  if (own::leave_number(number)) return next(descriptor, number, flags);
  errno = EMFILE;
  return -1;
}
