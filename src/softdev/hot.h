// hot.h - marking what runs once per request.
#pragma once

/// A function of the data path, used in one file only: always part of its caller. The compiler's own measure is
/// size; here a call more is one in every message's latency.
#define RDMACOMM_HOT_INLINE [[gnu::always_inline]] inline

namespace rdmacomm::softdev {

/// Asks for a cache line to write to. __builtin_prefetch(p, 1) asks for reading only, unless the whole file is
/// compiled for newer CPUs; the instruction is a no-op on those that do not have it.
inline void prefetch_for_writing(const void* line) noexcept {
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(line)));
}

}  // namespace rdmacomm::softdev
