// whose.h - whether an object belongs to soft0 or to a kernel device, and refusals of calls.
#pragma once

#include <infiniband/verbs.h>

#include <cerrno>

#include "softdev/context/soft_context.h"

namespace rdmacomm::softdev::preload {

[[nodiscard]] inline bool soft(const ibv_context* context) noexcept {
  return SoftContext::is(context);
}
/// For every object that has a context.
template <typename Object>
[[nodiscard]] bool soft(const Object* object) noexcept {
  return soft(object->context);
}

/// Sets errno and returns `value`.
template <typename Value>
Value refuse(Value value, int error = EOPNOTSUPP) noexcept {
  errno = error;
  return value;
}

/// Sets errno for a call that returns an errno value, because some programs print errno. Returns `error`.
inline int with_errno(int error) noexcept {
  if (error > 0) errno = error;
  return error;
}

}  // namespace rdmacomm::softdev::preload
