#include "softdev/preload/lookups.h"

#include <dlfcn.h>

#include <cstring>
#include <string_view>

#include "softdev/preload/loaded_objects.h"
#include "softdev/preload/plain_text.h"

namespace rdmacomm::softdev::preload {
namespace {

using Dlsym = void*(void* handle, const char* name);
using Dlvsym = void*(void* handle, const char* name, const char* version);

/// For a C library that is not glibc.
void* find_nothing() noexcept {
  return nullptr;
}

/// A function of glibc. It is in libdl up to release 2.33.
void* of_libc(const char* name) noexcept {
  void* found = function_of_file("libc.so.6", name);
  if (found == nullptr) found = function_of_file("libdl.so.2", name);
  return found != nullptr ? found : reinterpret_cast<void*>(find_nothing);
}

}  // namespace
}  // namespace rdmacomm::softdev::preload

#if defined(__x86_64__) || defined(__aarch64__)

namespace {

namespace preload = rdmacomm::softdev::preload;

bool of_libibverbs(const void* function) {
  Dl_info object{};
  if (dladdr(function, &object) == 0 || object.dli_fname == nullptr) return false;
  const std::string_view path = object.dli_fname;
  return path.substr(path.rfind('/') + 1).starts_with("libibverbs.so");  // npos + 1 is 0
}

/// `found`, or this library's function instead of it.
void* corrected(void* found, const char* name) {
  if (found == nullptr || (!preload::begins_with(name, "ibv_") && !preload::begins_with(name, "_ibv_"))) return found;
  if (!of_libibverbs(found)) return found;
  // `softdev-run --check` loads the checker in front of this library.
  void* const checked = preload::function_of_file("librdmacomm_check.so", name);
  void* const own = checked != nullptr ? checked : preload::function_of_this_library(name);
  return own != nullptr ? own : found;
}

}  // namespace

extern "C" {

// The functions of libc. The first call of dlsym or dlvsym finds them; it may come before this library's constructors.
[[gnu::visibility("hidden"), gnu::used]] preload::Dlsym* softdev_libc_dlsym = nullptr;
[[gnu::visibility("hidden"), gnu::used]] preload::Dlvsym* softdev_libc_dlvsym = nullptr;

[[gnu::visibility("hidden"), gnu::used]] void softdev_find_libc() {
  softdev_libc_dlvsym = reinterpret_cast<preload::Dlvsym*>(preload::of_libc("dlvsym"));
  softdev_libc_dlsym = reinterpret_cast<preload::Dlsym*>(preload::of_libc("dlsym"));
}

[[gnu::visibility("hidden"), gnu::used]] void* softdev_dlsym(void* handle, const char* name) {
  return corrected(softdev_libc_dlsym(handle, name), name);
}

[[gnu::visibility("hidden"), gnu::used]] void* softdev_dlvsym(void* handle, const char* name, const char* version) {
  void* const found = softdev_libc_dlvsym(handle, name, version);
  // The first version has other structures.
  return std::strcmp(version, "IBVERBS_1.0") == 0 ? found : corrected(found, name);
}
}

// Each function: if the table is empty, find libc's functions. If the handle is RTLD_DEFAULT (0) or RTLD_NEXT (-1), jump
// to libc's function, else to the function above.
#ifdef __x86_64__
#define RDMACOMM_LOOKUP(NAME)                                                                     \
  asm(".text\n\t.globl " #NAME "\n\t.type " #NAME ", @function\n" #NAME                           \
      ":\n\t.cfi_startproc\n\tendbr64\n\tcmpq $0, softdev_libc_" #NAME                            \
      "(%rip)\n\tjne 1f\n"                                                                        \
      "\tpush %rdi\n\t.cfi_adjust_cfa_offset 8\n\tpush %rsi\n\t.cfi_adjust_cfa_offset 8\n"        \
      "\tpush %rdx\n\t.cfi_adjust_cfa_offset 8\n\tcall softdev_find_libc\n"                       \
      "\tpop %rdx\n\t.cfi_adjust_cfa_offset -8\n\tpop %rsi\n\t.cfi_adjust_cfa_offset -8\n"        \
      "\tpop %rdi\n\t.cfi_adjust_cfa_offset -8\n"                                                 \
      "1:\tlea 1(%rdi), %rax\n\tcmp $1, %rax\n\tja softdev_" #NAME "\n\tjmp *softdev_libc_" #NAME \
      "(%rip)\n"                                                                                  \
      "\t.cfi_endproc\n\t.size " #NAME ", . - " #NAME)
#else  // a jump by x16 may reach a function that expects calls (BTI)
#define RDMACOMM_LOOKUP(NAME)                                                                             \
  asm(".text\n\t.globl " #NAME "\n\t.type " #NAME ", %function\n" #NAME                                   \
      ":\n\t.cfi_startproc\n\thint #34\n\tadrp x16, softdev_libc_" #NAME                                  \
      "\n\tldr x16, [x16, #:lo12:softdev_libc_" #NAME                                                     \
      "]\n\tcbnz x16, 1f\n"                                                                               \
      "\tstp x0, x1, [sp, #-32]!\n\t.cfi_adjust_cfa_offset 32\n\tstp x2, x30, [sp, #16]\n"                \
      "\t.cfi_rel_offset x30, 24\n\tbl softdev_find_libc\n\tldp x2, x30, [sp, #16]\n\t.cfi_restore x30\n" \
      "\tldp x0, x1, [sp], #32\n\t.cfi_adjust_cfa_offset -32\n\tadrp x16, softdev_libc_" #NAME            \
      "\n\tldr x16, [x16, #:lo12:softdev_libc_" #NAME                                                     \
      "]\n"                                                                                               \
      "1:\tadd x17, x0, #1\n\tcmp x17, #1\n\tb.hi softdev_" #NAME                                         \
      "\n\tbr x16\n"                                                                                      \
      "\t.cfi_endproc\n\t.size " #NAME ", . - " #NAME)
#endif
RDMACOMM_LOOKUP(dlsym);
RDMACOMM_LOOKUP(dlvsym);

#endif

void* rdmacomm::softdev::preload::uncorrected_dlsym(void* handle, const char* name) noexcept {
  static auto* const of_libc_itself = reinterpret_cast<Dlsym*>(of_libc("dlsym"));
  return of_libc_itself(handle, name);
}
