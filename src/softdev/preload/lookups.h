// lookups.h - dlsym and dlvsym for programs that look up the functions of libibverbs in a handle.
#pragma once

/// LD_PRELOAD alone changes only the symbols that the dynamic linker binds. Some programs are not linked with libibverbs:
/// they open it with dlopen, and look its functions up in that handle. This library therefore exports dlsym and dlvsym,
/// too. They return what the functions of libc return, with one exception: instead of a function of libibverbs that this
/// library has, too, they return this library's function. Any release of libibverbs will do, because nothing is said
/// about its other symbols and versions.
///
/// With RTLD_DEFAULT and RTLD_NEXT, the result depends on the library that calls. Then these functions jump to those of
/// libc without a frame of their own, so libc sees the same caller. This takes a few lines of assembly, for x86-64 and
/// AArch64. On other processors, lookups in a handle find libibverbs' own functions.
namespace rdmacomm::softdev::preload {

/// libc's dlsym, for a handle from dlopen.
[[nodiscard]] void* uncorrected_dlsym(void* handle, const char* name) noexcept;

}  // namespace rdmacomm::softdev::preload
