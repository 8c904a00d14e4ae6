// For the drop-in, which has the name of libibverbs. It finds the installed library by its path, and forwards all
// symbols that it does not implement.
#include <dlfcn.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>

#include "softdev/preload/next.h"

namespace {

/// A symbol of the installed libibverbs. generate_dropin.py writes the list and a slot for each symbol; calls jump
/// through the slots.
struct Forwarded {
  const char* name;
  const char* version;
};

}  // namespace

extern "C" {
extern const std::uint64_t dropin_count;
extern const Forwarded dropin_symbols[];
extern void* dropin_slots[];
}

namespace rdmacomm::softdev::preload {
namespace {

void* installed() noexcept {
  static void* const library = dlopen(RDMACOMM_INSTALLED_LIBIBVERBS, RTLD_NOW | RTLD_LOCAL);
  return library;
}

/// Called if the installed library is missing, or does not have the function.
std::intptr_t missing() noexcept {
  errno = ENOSYS;
  return 0;
}

/// Runs before any call, because the constructors of a program run after those of its libraries.
[[gnu::constructor]] void fill_slots() {
  for (std::size_t i = 0; i < dropin_count; ++i) {
    void* const found =
        installed() == nullptr ? nullptr : dlvsym(installed(), dropin_symbols[i].name, dropin_symbols[i].version);
    dropin_slots[i] = found == nullptr ? reinterpret_cast<void*>(missing) : found;
  }
}

}  // namespace

void* symbol_behind(const char* name) noexcept {
  return installed() == nullptr ? nullptr : dlsym(installed(), name);
}

}  // namespace rdmacomm::softdev::preload
