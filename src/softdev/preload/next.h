// next.h - the real libibverbs, which this library forwards calls for kernel devices to.
#pragma once

namespace rdmacomm::softdev::preload {

/// The symbol of the real libibverbs with this name; nullptr: libibverbs is not loaded, or this release does not have it.
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

/// The same for a verb that some releases of libibverbs do not have. In front of such a release, returns ABSENT.
#define RDMACOMM_FRONT_NEWER(NAME, SOFT, MINE, ARGUMENTS, ABSENT)                        \
  if (SOFT) return MINE;                                                                 \
  static auto* const behind = ::rdmacomm::softdev::preload::next<decltype(NAME)>(#NAME); \
  if (behind == nullptr) return ABSENT;                                                  \
  return behind ARGUMENTS
