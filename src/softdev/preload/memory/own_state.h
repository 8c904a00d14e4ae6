// own_state.h - the state of librdmacomm_own_memory.so.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstddef>

#include "softdev/preload/memory/blocks.h"
#include "softdev/preload/memory/own_file.h"
#include "softdev/preload/memory/ranges.h"

namespace rdmacomm::softdev::own {

/// A separate object, which has zeroes only. As a part of the state, its large table would lie in the library's file.
extern Ranges all_ranges;

/// The functions of this library replace those of the C library, which have no object that they belong to. So there is
/// one state in each process. It needs no initialization, because the first allocations come before all constructors.
struct OwnState {
  std::atomic<bool> active{false};  ///< new allocations lie in the file
  pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  std::atomic<pthread_t> owner{};  ///< of the lock
  OwnFile file;
  Blocks blocks{file};
  Ranges& ranges = all_ranges;

  [[nodiscard]] bool is_active() const noexcept { return active.load(std::memory_order_relaxed); }
  /// Calls `visit` with the parts of the memory that are in the file.
  template <typename Visit>
  void visit(const void* start, std::size_t length, Visit&& visit) const {
    ranges.visit(reinterpret_cast<std::uintptr_t>(start), length, visit);
    blocks.visit(reinterpret_cast<std::uintptr_t>(start), length, visit);
  }
};
extern OwnState state;

/// Holds the state's lock. A signal handler that forks may interrupt the owner; then it does not wait for itself.
class Locked {
 public:
  Locked() noexcept;
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;
  ~Locked();

 private:
  bool nested_;
};

/// Allocations from now on lie in the file.
void begin() noexcept;

/// Maps new memory of the file. flags: MAP_FIXED and other flags of mmap(). Returns nullptr: not possible.
[[nodiscard]] void* map_own(void* address, std::size_t length, int flags) noexcept;
/// Something else was mapped at these addresses, or nothing: gives back the file's pages that were mapped there.
void forget_mapped(const void* address, std::size_t length) noexcept;

}  // namespace rdmacomm::softdev::own
