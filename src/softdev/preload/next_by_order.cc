// For the library that is preloaded: libibverbs comes behind it in the order of loading.
#include <dlfcn.h>

#include "softdev/preload/next.h"

namespace rdmacomm::softdev::preload {

void* symbol_behind(const char* name) noexcept {
  return dlsym(RTLD_NEXT, name);
}

}  // namespace rdmacomm::softdev::preload
