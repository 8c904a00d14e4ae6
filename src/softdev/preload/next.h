// next.h - the libibverbs behind this front, which serves the kernel's devices.
#pragma once

#include <dlfcn.h>

namespace rdmacomm::softdev::preload {

/// The function of libibverbs that one of this front's stands before; nullptr: the program has no libibverbs.
template <typename Function>
Function* next(const char* name) noexcept {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

}  // namespace rdmacomm::softdev::preload

/// The body of a verb that soft0 has: for its objects (SOFT is true) the value of MINE, else libibverbs' answer to
/// NAME with ARGUMENTS. An object that is not soft0's came from libibverbs, so that is there.
#define RDMACOMM_FRONT(NAME, SOFT, MINE, ARGUMENTS)                                      \
  if (SOFT) return MINE;                                                                 \
  static auto* const behind = ::rdmacomm::softdev::preload::next<decltype(NAME)>(#NAME); \
  return behind ARGUMENTS
