// reusing_queue.h - a queue that reuses the memory of removed elements.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace rdmacomm::softdev {

/// First in, first out. A removed element stays allocated, with its own memory, and a later push_back() reuses it. So a
/// queue that has reached its full length allocates nothing more. An element keeps its address while it is in the
/// queue.
/// Threads: one at a time.
template <typename T>
class ReusingQueue {
 public:
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  /// index  0: the first element. Below size().
  [[nodiscard]] T& operator[](std::size_t index) noexcept { return *places_[(first_ + index) & (places_.size() - 1)]; }
  [[nodiscard]] const T& operator[](std::size_t index) const noexcept {
    return *places_[(first_ + index) & (places_.size() - 1)];
  }
  [[nodiscard]] T& front() noexcept { return (*this)[0]; }
  [[nodiscard]] T& back() noexcept { return (*this)[size_ - 1]; }

  /// Appends an element. Its contents are those of some earlier element: the caller must write all of it.
  T& push_back() {
    if (size_ == places_.size()) grow();
    std::unique_ptr<T>& place = places_[(first_ + size_) & (places_.size() - 1)];
    if (!place) place = std::make_unique<T>();
    ++size_;
    return *place;
  }
  void pop_front() noexcept {
    first_ = (first_ + 1) & (places_.size() - 1);
    if (--size_ == 0) let_go();
  }
  void pop_back() noexcept {
    if (--size_ == 0) let_go();
  }
  void clear() noexcept {
    size_ = 0;
    let_go();
  }

 private:
  // An empty queue keeps at most this number of places.
  static constexpr std::size_t kMaxKept = 64;

  void grow() {
    std::vector<std::unique_ptr<T>> more(size_ == 0 ? 1 : 2 * size_);
    for (std::size_t i = 0; i < size_; ++i) more[i] = std::move(places_[(first_ + i) & (size_ - 1)]);
    places_.swap(more);
    first_ = 0;
  }
  void let_go() noexcept {
    if (places_.size() <= kMaxKept) return;
    std::vector<std::unique_ptr<T>>().swap(places_);
    first_ = 0;
  }

  std::vector<std::unique_ptr<T>> places_;  // its size is a power of two, or 0
  std::size_t first_ = 0;
  std::size_t size_ = 0;
};

}  // namespace rdmacomm::softdev
