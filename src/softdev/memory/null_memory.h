// null_memory.h - the memory of null registrations (ibv_alloc_null_mr): it reads as zeroes, and discards written bytes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "softdev/memory/mr_table.h"

namespace rdmacomm::softdev {

/// Memory of this process for any part of a null registration. It has room for the longest message. Requests are at the
/// start of it whatever their address is.
/// writes  memory whose contents are never used; else memory that is zero and cannot be written
/// Returns  nullptr: the process cannot map it.
[[nodiscard]] std::byte* null_memory(bool writes) noexcept;

/// The place of a range of `entry` in the process that has registered it. Returns 0: a null registration whose memory
/// cannot be mapped.
[[nodiscard]] inline std::uint64_t memory_of(const MrEntry& entry, std::uint64_t address, bool writes) noexcept {
  if (entry.arena != Arena::kNull) [[likely]]
    return address + entry.shift;
  return reinterpret_cast<std::uint64_t>(null_memory(writes));
}

/// The table entry of a null registration.
[[nodiscard]] Registration null_registration(std::uint32_t pd) noexcept;

}  // namespace rdmacomm::softdev
