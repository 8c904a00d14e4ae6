// A program that is built with a sanitizer, for foreign_programs_test.py: registers memory and looks functions up.
#include <dlfcn.h>
#include <infiniband/verbs.h>

#include <cstdio>
#include <vector>

int main() {
  int count = 0;
  ibv_device** const devices = ibv_get_device_list(&count);
  if (count == 0) return 1;
  ibv_context* const context = ibv_open_device(devices[0]);
  ibv_free_device_list(devices);
  if (context == nullptr) return 2;
  ibv_pd* const domain = ibv_alloc_pd(context);
  std::vector<char> memory(100'000);
  ibv_mr* const region = ibv_reg_mr(domain, memory.data(), memory.size(), IBV_ACCESS_LOCAL_WRITE);
  if (region == nullptr) return 3;
  void* const found = dlsym(RTLD_DEFAULT, "ibv_fork_init");
  std::printf("%s %d\n", ibv_get_device_name(context->device), found != nullptr ? 1 : 0);
  return ibv_dereg_mr(region) | ibv_dealloc_pd(domain) | ibv_close_device(context);
}
