// prefetch.h - asking for a cache line before it is needed.
#pragma once

namespace rdmacomm::softdev {

/// Asks for a cache line to write to. __builtin_prefetch(p, 1) asks for reading only, unless the whole file is
/// compiled for newer x86 CPUs; the instruction is a no-op on those that do not have it.
inline void prefetch_for_writing(const void* line) noexcept {
#if defined(__x86_64__)
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(line)));
#else
  __builtin_prefetch(line, 1);
#endif
}

}  // namespace rdmacomm::softdev
