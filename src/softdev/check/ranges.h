// ranges.h - the bytes of the process that requests in flight use.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <utility>

namespace rdmacomm::softdev::check {

struct Request;

/// The slices of all requests in flight, by their address in this process.
/// Threads: one at a time.
class Ranges {
 public:
  struct Range {
    std::uint64_t length;
    Request* request;
    bool writes;  ///< the device writes these bytes
  };

  /// length  at least 1
  void insert(std::uint64_t address, const Range& range);
  void erase(std::uint64_t address, std::uint64_t length, const Request* request);
  /// Calls a function with each range that has a byte of [address, address + length). The function returns false to end
  /// the search. It must not change this object.
  /// Cost: logarithmic in the number of ranges, for each power of two that is the size of some range.
  void for_each(std::uint64_t address, std::uint64_t length,
                const std::function<bool(std::uint64_t address, const Range& range)>& function) const;

 private:
  using Key = std::pair<std::uint64_t, const Request*>;  ///< address and request; a request may repeat a slice
  using Class = std::multimap<Key, Range>;
  [[nodiscard]] static unsigned class_of(std::uint64_t length) noexcept;

  /// Ranges of 2^n to 2^(n+1) - 1 bytes are in class n. So the begin of a range of a class that has a certain byte is at
  /// most 2^(n+1) bytes before it.
  std::array<Class, 64> classes_;
};

}  // namespace rdmacomm::softdev::check
