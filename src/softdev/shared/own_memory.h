// own_memory.h - the application's own memory as a file that peers map: the interface of librdmacomm_own_memory.so.
//
// softdev-run loads this library into programs. It places large allocations of the program in one memfd, so that peers
// access them with loads and stores. soft0 finds the library by the symbol `rdmacomm_own_memory`.
#pragma once

#include <cstdint>

namespace rdmacomm::softdev {

struct OwnMemory {
  static constexpr std::uint32_t kVersion = 1;
  std::uint32_t version = kVersion;
  /// Allocations from now on lie in the file. Called when the program first asks for devices.
  void (*begin)() = nullptr;
  /// The descriptor of the file; -1: no such file exists.
  int (*descriptor)() = nullptr;
};

}  // namespace rdmacomm::softdev
