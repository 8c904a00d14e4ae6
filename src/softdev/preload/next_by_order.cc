// For the preloaded library: the real libibverbs is loaded after it.
#include <dlfcn.h>

#include "softdev/preload/next.h"

namespace rdmacomm::softdev::preload {

void* symbol_behind(const char* name) noexcept {
  return dlsym(RTLD_NEXT, name);
}

}  // namespace rdmacomm::softdev::preload
