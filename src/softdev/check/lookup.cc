// The functions of this library by name, for programs that look up the functions of libibverbs in a handle.
#include <dlfcn.h>

#include "softdev/check/next.h"

/// Called by the dlsym() of the preloaded library of soft0. nullptr: the checker has no such function.
RDMACOMM_CHECKS void* rdmacomm_check_function(const char* name) {
  Dl_info own{};
  if (dladdr(reinterpret_cast<void*>(rdmacomm_check_function), &own) == 0) return nullptr;
  void* const library = dlopen(own.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return nullptr;
  void* const found = dlsym(library, name);
  dlclose(library);  // it stays loaded
  Dl_info object{};
  // Its dependencies are searched, too.
  return found != nullptr && dladdr(found, &object) != 0 && object.dli_fbase == own.dli_fbase ? found : nullptr;
}
