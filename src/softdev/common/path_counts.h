// path_counts.h - counts the requests of this process that could not use loads and stores, for `softdev-run --stats`.
#pragma once

#include <atomic>
#include <cstdint>

namespace rdmacomm::softdev {

/// Only the slow paths count, because a counter would cost the fast one. A request may have several parts.
struct PathCounts {
  std::atomic<std::uint64_t> system_calls{0};  ///< parts that were copied by system calls
  std::atomic<std::uint64_t> served{0};        ///< parts that the serving thread of the target copied
  std::atomic<std::uint64_t> tcp{0};           ///< requests that were sent over TCP
};

/// The counts of this process. They are printed once for each process, so they belong to no context.
inline PathCounts& path_counts() noexcept {
  static constinit PathCounts counts;
  return counts;
}

inline void count(std::atomic<std::uint64_t>& counter) noexcept {
  counter.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace rdmacomm::softdev
