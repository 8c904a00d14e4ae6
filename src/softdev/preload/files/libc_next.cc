#include "softdev/preload/files/libc_next.h"

#include <dlfcn.h>

namespace rdmacomm::softdev::preload {

void* find_next(const char* name) noexcept {
  return dlsym(RTLD_NEXT, name);
}

}  // namespace rdmacomm::softdev::preload
