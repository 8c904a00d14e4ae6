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

}  // namespace rdmacomm::softdev::preload
