// next.h - the real libibverbs, which this library forwards calls for kernel devices to.
#pragma once

namespace rdmacomm::softdev::preload {

/// The symbol of the real libibverbs with this name; nullptr: it does not exist, or not in this release. The library
/// for LD_PRELOAD (next_by_order.cc) and the drop-in (next_by_path.cc) find it in different ways.
[[nodiscard]] void* symbol_behind(const char* name) noexcept;

/// The function of the real libibverbs with this name; nullptr: it does not exist.
template <typename Function>
Function* next(const char* name) noexcept {
  return reinterpret_cast<Function*>(symbol_behind(name));
}

}  // namespace rdmacomm::softdev::preload

/// The body of a verb that soft0 has. If SOFT is true, the object belongs to soft0, and the result is MINE. Otherwise
/// calls NAME of the real libibverbs with ARGUMENTS. Such an object was made by the real libibverbs, so that library is
/// loaded.
#define RDMACOMM_FRONT(NAME, SOFT, MINE, ARGUMENTS)                                      \
  if (SOFT) return MINE;                                                                 \
  static auto* const behind = ::rdmacomm::softdev::preload::next<decltype(NAME)>(#NAME); \
  return behind ARGUMENTS
