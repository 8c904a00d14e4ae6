// raw_memory.h - the kernel's calls for memory, which bypass the functions that this library replaces.
#pragma once

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
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

/// A system call, also if this library replaces syscall().
inline long raw_call(long call, std::uintptr_t first, std::uintptr_t second, std::uintptr_t third,
                     std::uintptr_t fourth = 0, std::uintptr_t fifth = 0, std::uintptr_t sixth = 0) noexcept {
#ifdef __x86_64__
  register std::uintptr_t r10 asm("r10") = fourth;
  register std::uintptr_t r8 asm("r8") = fifth;
  register std::uintptr_t r9 asm("r9") = sixth;
  long result = call;
  asm volatile("syscall"
               : "+a"(result)
               : "D"(first), "S"(second), "d"(third), "r"(r10), "r"(r8), "r"(r9)
               : "rcx", "r11", "memory");
  if (result < 0 && result > -4096) {
    errno = static_cast<int>(-result);
    return -1;
  }
  return result;
#else
  return syscall(call, first, second, third, fourth, fifth, sixth);
#endif
}

inline void* raw_mmap(void* address, std::size_t length, int protection, int flags, int fd,
                      std::uint64_t offset) noexcept {
  const auto wide = [](int value) { return static_cast<std::uintptr_t>(value); };
  return pointer(static_cast<std::uintptr_t>(
      raw_call(SYS_mmap, number(address), length, wide(protection), wide(flags), wide(fd), offset)));
}
inline int raw_munmap(void* address, std::size_t length) noexcept {
  return static_cast<int>(raw_call(SYS_munmap, number(address), length, 0));
}
inline int raw_madvise(void* address, std::size_t length, int advice) noexcept {
  return static_cast<int>(raw_call(SYS_madvise, number(address), length, static_cast<std::uintptr_t>(advice)));
}
inline void* raw_mremap(void* address, std::size_t length, std::size_t new_length, int flags,
                        void* new_address) noexcept {
  return pointer(static_cast<std::uintptr_t>(raw_call(SYS_mremap, number(address), length, new_length,
                                                      static_cast<std::uintptr_t>(flags), number(new_address))));
}
/// Whether the kernel would give the program this much private memory. The file itself has no such limit, so a program
/// that asks for far too much would not notice. Cost: up to 64 MiB none, else two system calls.
inline bool is_affordable(std::size_t length) noexcept {
  if (length <= std::size_t{64} << 20) return true;
  void* const probe = raw_mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (probe == MAP_FAILED) return false;
  (void)raw_munmap(probe, length);
  return true;
}
/// Zeroed private memory for this library; nullptr: none.
inline void* private_memory(std::size_t length) noexcept {
  void* const memory = raw_mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

}  // namespace rdmacomm::softdev::own
