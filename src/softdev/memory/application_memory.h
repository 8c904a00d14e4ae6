// application_memory.h - where the application's own memory lies, and whether peers can map it.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace rdmacomm::softdev {

/// How initiators reach registered memory of the application.
enum class Reach : std::uint8_t {
  kMapped,         ///< with loads and stores: it is in the file of own_memory.h
  kOff,            ///< by system calls: the program runs without that file
  kPrivate,        ///< by system calls: the memory was allocated before the file existed, or by other means
  kFileMapping,    ///< by system calls: it is a file
  kSharedMapping,  ///< by system calls: it is shared memory of the application
  kSeveral,        ///< by system calls: it is in several mappings
};
inline constexpr std::size_t kReaches = 6;

/// Counts the registrations in this process, for `softdev-run --stats`. Memory from allocate_memory() does not count.
struct ReachCounts {
  std::array<std::atomic<std::uint64_t>, kReaches> registrations{};  ///< by Reach
  std::array<std::atomic<std::uint64_t>, kReaches> bytes{};
  void add(Reach reach, std::size_t length) noexcept {
    registrations[static_cast<std::size_t>(reach)].fetch_add(1, std::memory_order_relaxed);
    bytes[static_cast<std::size_t>(reach)].fetch_add(length, std::memory_order_relaxed);
  }
};
[[nodiscard]] ReachCounts& reach_counts() noexcept;

/// Asks librdmacomm_own_memory.so, if it is loaded, to place the application's next allocations in the file.
void begin_own_memory();
/// The descriptor of the file for peers; -1: none.
[[nodiscard]] int own_memory_fd();
/// Finds [address, address + length) in the file, and its `offset` there if the result is kMapped. The kernel's map of
/// addresses decides, because the application can unmap memory and map something else there.
/// Cost: a few microseconds, see AddressMap.
[[nodiscard]] Reach locate_own_memory(const void* address, std::size_t length, std::uint64_t& offset);

}  // namespace rdmacomm::softdev
