// prefetch.h - fetches a cache line before it is needed.
#pragma once

namespace rdmacomm::softdev {

/// Fetches a cache line for writing. __builtin_prefetch(p, 1) fetches it for reading only, unless the whole file is
/// compiled for newer x86 CPUs. On CPUs without this instruction it does nothing.
inline void prefetch_for_writing(const void* line) noexcept {
#if defined(__x86_64__)
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(line)));
#else
  __builtin_prefetch(line, 1);
#endif
}

}  // namespace rdmacomm::softdev
