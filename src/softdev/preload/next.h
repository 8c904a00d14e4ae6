// next.h - the libibverbs behind this front, which serves the kernel's devices.
#pragma once

namespace rdmacomm::softdev::preload {

/// What the libibverbs behind has under this name; nullptr: there is none, or it is another release. How it is found is the
/// difference between the library for LD_PRELOAD (next_by_order.cc) and the drop-in (next_by_path.cc).
[[nodiscard]] void* symbol_behind(const char* name) noexcept;

/// The function of libibverbs that one of this front's stands before; nullptr: there is none.
template <typename Function>
Function* next(const char* name) noexcept {
  return reinterpret_cast<Function*>(symbol_behind(name));
}

}  // namespace rdmacomm::softdev::preload

/// The body of a verb that soft0 has: for its objects (SOFT is true) the value of MINE, else libibverbs' answer to
/// NAME with ARGUMENTS. An object that is not soft0's came from libibverbs, so that is there.
#define RDMACOMM_FRONT(NAME, SOFT, MINE, ARGUMENTS)                                      \
  if (SOFT) return MINE;                                                                 \
  static auto* const behind = ::rdmacomm::softdev::preload::next<decltype(NAME)>(#NAME); \
  return behind ARGUMENTS
