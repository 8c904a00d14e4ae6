// allocation_counter.h - what a test program allocates by operator new. For programs that link allocation_counter.cc,
// which puts its own operators in place of the standard library's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace rdmacomm::testing {

/// How often the calling thread has allocated.
[[nodiscard]] std::uint64_t allocations_of_this_thread() noexcept;

/// Blocks that all threads together hold now. Exact, where the C library's own figures count what its caches keep.
[[nodiscard]] std::int64_t held_allocations() noexcept;

/// Which allocation fails. A value.
struct AllocationToFail {
  std::string thread = {};     ///< of threads of this name
  int number = 1;              ///< counted from 1
  std::size_t from_bytes = 0;  ///< of those that are at least as long
};

/// While it lives, that one allocation ends with std::bad_alloc. One at a time.
class FailingAllocation {
 public:
  explicit FailingAllocation(const AllocationToFail& which);
  FailingAllocation(const FailingAllocation&) = delete;
  FailingAllocation& operator=(const FailingAllocation&) = delete;
  ~FailingAllocation();

  /// Whether this program's operator new can fail: not if it is the sanitizer's.
  [[nodiscard]] static bool possible() noexcept;
  /// Whether it has failed by now.
  [[nodiscard]] bool reached() const noexcept;
};

}  // namespace rdmacomm::testing
