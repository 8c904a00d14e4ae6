// folder_names.h - the names in a folder, without opendir().
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>

namespace rdmacomm::softdev {

/// As in getdents64(2); the C library has no declaration.
struct FolderEntry {
  std::uint64_t inode;
  std::int64_t offset;
  unsigned short length;
  unsigned char type;
  char name[1];
};

/// Calls `act(name, type)` for each entry of a folder, except "." and "..". Needs no memory from malloc(), and calls no
/// function that the program may have replaced.
/// folder  its descriptor, whose position changes
/// Returns  false: not all entries could be read
template <typename Act>
bool for_each_name(int folder, Act act) noexcept {
  alignas(FolderEntry) char buffer[1024];
  (void)lseek(folder, 0, SEEK_SET);
  for (;;) {
    const long bytes = syscall(SYS_getdents64, folder, buffer, sizeof(buffer));
    if (bytes <= 0) return bytes == 0;
    for (long at = 0; at < bytes;) {
      const auto* const entry = reinterpret_cast<const FolderEntry*>(buffer + at);
      at += entry->length;
      const char* const name = buffer + (reinterpret_cast<const char*>(&entry->name) - buffer);
      if (std::strcmp(name, ".") != 0 && std::strcmp(name, "..") != 0) act(name, entry->type);
    }
  }
}

}  // namespace rdmacomm::softdev
