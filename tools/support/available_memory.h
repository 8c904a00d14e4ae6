// available_memory.h - how much memory a process may still allocate before its machine or control group runs out of it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "rdmacomm/result.h"

namespace rdmacomm::programs {

/// Bytes that this process can allocate and use: the machine's MemAvailable, or less if a control group (version 1 or
/// 2) that the process is in has a limit. Page cache that the kernel can drop counts as available.
///
/// root     "" for this machine; tests give a directory that has "proc" and "sys" in it
/// Returns  nullopt: the kernel does not report it
[[nodiscard]] std::optional<std::uint64_t> available_memory(const std::string& root = "");

/// "12.5 GiB", for messages.
[[nodiscard]] std::string gib_text(std::uint64_t bytes);

}  // namespace rdmacomm::programs
