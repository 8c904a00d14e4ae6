// For the drop-in, which has libibverbs' name: the installed one is found by its path, and the symbols that the front does
// not have are led there.
#include <dlfcn.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>

#include "softdev/preload/next.h"

namespace {

/// A symbol of the installed libibverbs. generate_dropin.py writes the list, and a slot for each, by which calls jump.
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

/// Where the installed library is missing, or of a release without the function.
std::intptr_t missing() noexcept {
  errno = ENOSYS;
  return 0;
}

/// Before anybody calls: programs' own constructors run after those of the libraries that they need.
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
