// ranges.h - the parts of the file that the program has mapped by mmap().
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace rdmacomm::softdev::own {

struct Range {
  std::uintptr_t start = 0;
  std::size_t length = 0;
  std::uint64_t offset = 0;  ///< in the file
  [[nodiscard]] std::uintptr_t end() const noexcept { return start + length; }
};

/// Ranges in the order of their addresses. An entry may be out of date if the program unmaps memory by the bare system
/// call. So only the release of pages relies on it, never a registration.
/// Threads: the caller has locked the state.
class Ranges {
 public:
  static constexpr std::size_t kMost = 65536;  ///< a process has no more mappings by default

  /// Returns  false: full.
  [[nodiscard]] bool add(const Range& range) noexcept {
    // Leaves one entry for remove(), which may split one.
    if (count_ + 1 >= kMost) return false;
    insert(first_after(range.start), range);
    return true;
  }
  /// Calls `visit` with the parts inside [start, start + length), in order.
  template <typename Visit>
  void visit(std::uintptr_t start, std::size_t length, Visit&& visit) const {
    const std::uintptr_t end = start + length;
    for (std::size_t i = first_after(start); i < count_ && all_[i].start < end; ++i) visit(part(all_[i], start, end));
  }
  /// Removes the parts inside [start, start + length), and calls `visit` with each.
  template <typename Visit>
  void remove(std::uintptr_t start, std::size_t length, Visit&& visit) {
    const std::uintptr_t end = start + length;
    for (std::size_t i = first_after(start); i < count_ && all_[i].start < end;) {
      const Range whole = all_[i];
      visit(part(whole, start, end));
      const bool before = whole.start < start;
      const bool after = whole.end() > end;
      if (before) all_[i++].length = start - whole.start;
      if (after) {
        const Range rest{end, whole.end() - end, whole.offset + (end - whole.start)};
        before ? insert(i, rest) : static_cast<void>(all_[i] = rest);
        return;
      }
      if (!before) erase(i);
    }
  }
  [[nodiscard]] bool covers(std::uintptr_t start, std::size_t length) const {
    std::size_t covered = 0;
    visit(start, length, [&covered](const Range& range) { covered += range.length; });
    return covered == length;
  }
  void clear() noexcept { count_ = 0; }

 private:
  [[nodiscard]] static Range part(const Range& range, std::uintptr_t start, std::uintptr_t end) noexcept {
    const std::uintptr_t from = std::max(range.start, start);
    return {from, std::min(range.end(), end) - from, range.offset + (from - range.start)};
  }
  /// The index of the first range that ends after `address`.
  [[nodiscard]] std::size_t first_after(std::uintptr_t address) const noexcept {
    const Range* const found = std::upper_bound(
        all_, all_ + count_, address, [](std::uintptr_t wanted, const Range& range) { return wanted < range.end(); });
    return static_cast<std::size_t>(found - all_);
  }
  void insert(std::size_t index, const Range& range) noexcept {
    std::memmove(all_ + index + 1, all_ + index, (count_ - index) * sizeof(Range));
    all_[index] = range;
    ++count_;
  }
  void erase(std::size_t index) noexcept {
    --count_;
    std::memmove(all_ + index, all_ + index + 1, (count_ - index) * sizeof(Range));
  }

  std::size_t count_ = 0;
  Range all_[kMost];
};

}  // namespace rdmacomm::softdev::own
