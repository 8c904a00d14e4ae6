// allocation_counter.h - counts the allocations that a test program makes with operator new. For programs that link
// allocation_counter.cc, which replaces the standard library's operators.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace rdmacomm::testing {

/// Number of allocations that the calling thread has made.
[[nodiscard]] std::uint64_t allocations_of_this_thread() noexcept;

/// Number of blocks that all threads together hold now. Exact, unlike the C library's own figures, which include its
/// caches.
[[nodiscard]] std::int64_t held_allocations() noexcept;

/// Selects the allocation that fails. A value.
struct AllocationToFail {
  std::string thread = {};     ///< only allocations by threads of this name
  int number = 1;              ///< counted from 1
  std::size_t from_bytes = 0;  ///< only allocations of at least this size
};

/// While it lives, the selected allocation throws std::bad_alloc. At most one object at a time.
class FailingAllocation {
 public:
  explicit FailingAllocation(const AllocationToFail& which);
  FailingAllocation(const FailingAllocation&) = delete;
  FailingAllocation& operator=(const FailingAllocation&) = delete;
  ~FailingAllocation();

  /// Whether this program's operator new can fail. False if the sanitizer provides it.
  [[nodiscard]] static bool possible() noexcept;
  /// Whether the allocation has already failed.
  [[nodiscard]] bool reached() const noexcept;
};

}  // namespace rdmacomm::testing
