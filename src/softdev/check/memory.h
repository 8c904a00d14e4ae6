// memory.h - reads and writes the memory of the program, which may have been unmapped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace rdmacomm::softdev::check {

/// Some bytes of the program.
struct Bytes {
  std::uint64_t address;
  std::uint64_t length;
};

/// The XXH3 of all bytes, one after the other; nothing if some of them cannot be read.
/// Threads: any. The memory may change meanwhile.
/// Cost: copies the bytes in pieces by process_vm_readv, so that no signal ends the program.
[[nodiscard]] std::optional<std::uint64_t> hash_memory(std::span<const Bytes> pieces);

/// Copies to the program's memory. Returns false if some of it cannot be written.
[[nodiscard]] bool write_memory(std::uint64_t to, const void* from, std::uint64_t length);

/// Copies from the program's memory. Returns false if some of it cannot be read.
[[nodiscard]] bool read_memory(void* to, std::uint64_t from, std::uint64_t length);

}  // namespace rdmacomm::softdev::check
