#include "softdev/preload/next.h"

#include <dlfcn.h>

#include "softdev/preload/lookups.h"

namespace rdmacomm::softdev::preload {

void* symbol_behind(const char* name) noexcept {
  if (void* const found = dlsym(RTLD_NEXT, name); found != nullptr) return found;
  // RTLD_NEXT does not find a libibverbs that the program has loaded with RTLD_LOCAL.
  void* const loaded = dlopen("libibverbs.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (loaded == nullptr) return nullptr;
  void* const found = uncorrected_dlsym(loaded, name);
  dlclose(loaded);  // the program has a handle of its own
  return found;
}

}  // namespace rdmacomm::softdev::preload
