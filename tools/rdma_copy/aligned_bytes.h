// aligned_bytes.h - memory that files are read into and written from.
#pragma once

#include <cstddef>
#include <new>
#include <vector>

namespace rdmacomm::copying {

/// Where bytes of a file begin in memory, on both sides, the address is a multiple of it. The system copies them from
/// and to pages of the file, and Zen 3 and Zen 4 do that at a quarter of their speed where they are 1 to 31 bytes
/// further in a page here than there, as what malloc() made is (base/copy_bytes.h has the same for copies in memory).
inline constexpr std::size_t kDataAlignment = 64;

/// What std::vector takes its memory from. A value without content.
template <typename T>
struct DataAllocator {
  using value_type = T;
  DataAllocator() = default;
  template <typename Other>
  DataAllocator(const DataAllocator<Other>& /*other*/) noexcept {}  // NOLINT(google-explicit-constructor)
  [[nodiscard]] T* allocate(std::size_t count) {
    return static_cast<T*>(::operator new (count * sizeof(T), std::align_val_t{kDataAlignment}));
  }
  // Without the size: clang has that form by an option only.
  void deallocate(T* memory, std::size_t /*count*/) noexcept {
    ::operator delete (memory, std::align_val_t{kDataAlignment});
  }
  bool operator==(const DataAllocator&) const = default;
};

/// Bytes of which the first one is at a multiple of kDataAlignment.
using AlignedBytes = std::vector<std::byte, DataAllocator<std::byte>>;

}  // namespace rdmacomm::copying
