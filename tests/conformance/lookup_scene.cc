// A library that looks symbols up with RTLD_NEXT and RTLD_DEFAULT, for foreign_programs_test.py.
#include <dlfcn.h>

namespace {

/// The file of the library that contains `address`.
const char* file_of(void* address) {
  Dl_info object{};
  return dladdr(address, &object) != 0 ? object.dli_fname : "nothing";
}

}  // namespace

extern "C" {

/// Hides libibverbs' function from a lookup with RTLD_NEXT in a library before this one.
void* ibv_get_device_list(int* /*count*/) {
  return nullptr;
}
void only_in_the_scene() {}

const char* next_device_list() {
  return file_of(dlsym(RTLD_NEXT, "ibv_get_device_list"));
}
const char* own_function_by_default() {
  return file_of(dlsym(RTLD_DEFAULT, "only_in_the_scene"));
}
}
