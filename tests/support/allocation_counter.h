// allocation_counter.h - what a test program allocates by operator new. For programs that link allocation_counter.cc, which
// puts its own operators in place of the standard library's.
#pragma once

#include <cstdint>

namespace rdmacomm::testing {

/// How often the calling thread has allocated.
[[nodiscard]] std::uint64_t allocations_of_this_thread() noexcept;

/// Blocks that all threads together hold now. Exact, where the C library's own figures count what its caches keep.
[[nodiscard]] std::int64_t held_allocations() noexcept;

}  // namespace rdmacomm::testing
