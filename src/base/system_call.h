// system_call.h - the error of a system call that failed.
// Layer: base.   Above base/, errno is read here and in verbs/call.h only.
#pragma once

#include <cerrno>
#include <system_error>

namespace rdmacomm {

/// The error of the system call that has just failed with -1, as a code. Call it at once: the next system call
/// overwrites errno.
[[nodiscard]] inline std::error_code last_system_error() noexcept {
  return {errno, std::generic_category()};
}

/// Repeats `call` (which returns -1 on errors) until no signal interrupts it.
template <typename Call>
[[nodiscard]] auto retry_interrupted(Call&& call) noexcept(noexcept(call())) {
  for (;;) {
    const auto returned = call();
    if (returned != -1 || errno != EINTR) return returned;
  }
}

}  // namespace rdmacomm
