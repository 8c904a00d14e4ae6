// raw_memory.h - the kernel's calls for memory, which bypass the functions that this library replaces.
#pragma once

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>

namespace rdmacomm::softdev::own {

inline constexpr std::size_t kPage = 4096;

[[nodiscard]] constexpr std::size_t in_pages(std::size_t bytes) noexcept {
  return (bytes + kPage - 1) / kPage * kPage;
}
[[nodiscard]] inline std::uintptr_t number(const void* address) noexcept {
  return reinterpret_cast<std::uintptr_t>(address);
}
[[nodiscard]] inline void* pointer(std::uintptr_t address) noexcept {
  return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr)
}

inline void* raw_mmap(void* address, std::size_t length, int protection, int flags, int fd,
                      std::uint64_t offset) noexcept {
  return pointer(static_cast<std::uintptr_t>(syscall(SYS_mmap, address, length, protection, flags, fd, offset)));
}
inline int raw_munmap(void* address, std::size_t length) noexcept {
  return static_cast<int>(syscall(SYS_munmap, address, length));
}
inline int raw_madvise(void* address, std::size_t length, int advice) noexcept {
  return static_cast<int>(syscall(SYS_madvise, address, length, advice));
}
inline void* raw_mremap(void* address, std::size_t length, std::size_t new_length, int flags,
                        void* new_address) noexcept {
  return pointer(static_cast<std::uintptr_t>(syscall(SYS_mremap, address, length, new_length, flags, new_address)));
}
/// Zeroed private memory for this library; nullptr: none.
inline void* private_memory(std::size_t length) noexcept {
  void* const memory = raw_mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

}  // namespace rdmacomm::softdev::own
