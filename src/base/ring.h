// ring.h - a queue of bounded length that allocates only once.
// Layer: base.
#pragma once

#include <bit>
#include <cstddef>
#include <utility>
#include <vector>

namespace rdmacomm {

/// First in, first out. The caller makes sure that the ring has room. A value; no allocation after construction.
/// Threads: one at a time.
template <typename T>
class Ring {
 public:
  /// capacity  the least number of elements that it must hold: 1 or more; rounded up to a power of two
  explicit Ring(std::size_t capacity) : places_(std::bit_ceil(capacity)) {}

  [[nodiscard]] bool empty() const noexcept { return count_ == 0; }
  [[nodiscard]] std::size_t size() const noexcept { return count_; }
  [[nodiscard]] std::size_t capacity() const noexcept { return places_.size(); }
  /// The oldest element. The ring must not be empty.
  [[nodiscard]] T& front() noexcept { return places_[first_]; }
  [[nodiscard]] const T& front() const noexcept { return places_[first_]; }
  /// Requires size() < capacity().
  void push(T one) noexcept { places_[at(first_ + count_++)] = std::move(one); }
  /// Removes the oldest element. The ring must not be empty.
  void pop() noexcept {
    first_ = at(first_ + 1);
    --count_;
  }

 private:
  [[nodiscard]] std::size_t at(std::size_t place) const noexcept { return place & (places_.size() - 1); }

  std::vector<T> places_;
  std::size_t first_ = 0;
  std::size_t count_ = 0;
};

}  // namespace rdmacomm
