// libc_next.h - the functions of the C library that this library replaces.
#pragma once

#include <atomic>

namespace rdmacomm::softdev::preload {

/// Finds the next function with this name after this library. nullptr: the C library does not have it.
[[nodiscard]] void* find_next(const char* name) noexcept;

/// A replaced function. Its first call looks it up. Files whose functions are called in signal handlers do so when the
/// library is loaded. A later call costs one load, and is safe in a signal handler.
template <typename Function>
class Next {
 public:
  explicit constexpr Next(const char* name) noexcept : name_(name) {}
  Next(const Next&) = delete;
  Next& operator=(const Next&) = delete;
  /// nullptr: the C library does not have the function.
  [[nodiscard]] Function* get() noexcept {
    void* found = found_.load(std::memory_order_relaxed);
    if (found == nullptr) [[unlikely]] {
      found = find_next(name_);
      found_.store(found, std::memory_order_relaxed);
    }
    return reinterpret_cast<Function*>(found);
  }
  template <typename... Arguments>
  auto operator()(Arguments... arguments) noexcept(false) {
    return get()(arguments...);
  }

 private:
  const char* const name_;
  std::atomic<void*> found_{nullptr};
};

}  // namespace rdmacomm::softdev::preload
