// next.h - the functions that the checker stands in front of.
#pragma once

#include <dlfcn.h>

namespace rdmacomm::softdev::check {

/// The function with this name in the libraries behind this one; nullptr: none has it. Programs can open libibverbs
/// with RTLD_LOCAL, which RTLD_NEXT does not find.
/// Threads: any.
template <typename Function>
Function* next(const char* name) noexcept {
  void* found = dlsym(RTLD_NEXT, name);
  if (found == nullptr) {
    void* const loaded = dlopen("libibverbs.so.1", RTLD_LAZY | RTLD_NOLOAD);
    if (loaded != nullptr) {
      found = dlsym(loaded, name);
      dlclose(loaded);  // the program has a handle of its own
    }
  }
  return reinterpret_cast<Function*>(found);
}

}  // namespace rdmacomm::softdev::check

/// Marks a function that replaces one of another library.
#define RDMACOMM_CHECKS extern "C" [[gnu::visibility("default")]]

/// Declares `behind`, the next library's function NAME.
#define RDMACOMM_BEHIND(NAME) static auto* const behind = ::rdmacomm::softdev::check::next<decltype(NAME)>(#NAME)
