// next_function.h - the functions that this library replaces, as the next library has them.
#pragma once

#include <dlfcn.h>

namespace rdmacomm::softdev::own {

/// The next library's function with this name; nullptr: none.
template <typename Function>
Function* next_function(const char* name) noexcept {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

}  // namespace rdmacomm::softdev::own

/// Exports a function that replaces the C library's.
#define RDMACOMM_REPLACES extern "C" [[gnu::visibility("default")]]
