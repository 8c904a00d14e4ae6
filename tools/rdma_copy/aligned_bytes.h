// aligned_bytes.h - memory for the bytes of files.
#pragma once

#include <cstddef>
#include <new>
#include <vector>

namespace rdmacomm::copying {

/// In memory, the bytes of a file begin at a multiple of this, on both peers. The system copies them to and from pages
/// of the file. On Zen 3 and Zen 4 this takes four times as long if the memory is 1 to 31 bytes further in its page
/// than the file's bytes. Memory from malloc() often is. (base/copy_bytes.h has the same for copies in memory.)
inline constexpr std::size_t kDataAlignment = 64;

/// The allocator for std::vector. A value without content.
template <typename T>
struct DataAllocator {
  using value_type = T;
  DataAllocator() = default;
  template <typename Other>
  DataAllocator(const DataAllocator<Other>& /*other*/) noexcept {}  // NOLINT(google-explicit-constructor)
  [[nodiscard]] T* allocate(std::size_t count) {
    return static_cast<T*>(::operator new (count * sizeof(T), std::align_val_t{kDataAlignment}));
  }
  // Without the size, because clang supports that form only with an option.
  void deallocate(T* memory, std::size_t /*count*/) noexcept {
    ::operator delete (memory, std::align_val_t{kDataAlignment});
  }
  bool operator==(const DataAllocator&) const = default;
};

/// Bytes that begin at a multiple of kDataAlignment.
using AlignedBytes = std::vector<std::byte, DataAllocator<std::byte>>;

}  // namespace rdmacomm::copying
