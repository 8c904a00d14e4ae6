// replaced.h - this library's versions of mmap(), munmap(), mremap() and madvise().
#pragma once

#include <sys/types.h>

#include <cstddef>

namespace rdmacomm::softdev::own {

void* map(void* address, std::size_t length, int protection, int flags, int fd, off_t offset) noexcept;
int unmap(void* address, std::size_t length) noexcept;
/// wanted  the new address, if the flags ask for one
void* remap(void* old, std::size_t old_length, std::size_t length, int flags, void* wanted) noexcept;
int advise(void* address, std::size_t length, int advice) noexcept;

}  // namespace rdmacomm::softdev::own
