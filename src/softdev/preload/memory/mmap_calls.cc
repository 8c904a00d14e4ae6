// mmap() and its relatives: plain private memory lies in the file, and behaves as private memory.
#include <stdarg.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>

#include "softdev/preload/memory/next_function.h"
#include "softdev/preload/memory/own_state.h"
#include "softdev/preload/memory/raw_memory.h"
#include "softdev/preload/memory/replaced.h"

namespace rdmacomm::softdev::own {
namespace {

constexpr int kHints = MAP_POPULATE | MAP_NONBLOCK | MAP_DENYWRITE | MAP_EXECUTABLE | MAP_32BIT;

/// True for memory that a buffer may be made of. Sparse reservations (MAP_NORESERVE), stacks, huge pages and memory at
/// given addresses stay as they are.
bool is_plain(int protection, int flags) noexcept {
  return protection == (PROT_READ | PROT_WRITE) && (flags & ~kHints) == (MAP_PRIVATE | MAP_ANONYMOUS);
}

/// True if some of the memory is in the file.
bool has_own(const void* address, std::size_t length) noexcept {
  if (!state.file.exists()) return false;
  const Locked locked;
  bool has = false;
  state.visit(address, length, [&has](const Range& /*range*/) { has = true; });
  return has;
}

/// Discards the contents, so that the memory reads as zeroes.
void discard(const void* address, std::size_t length) noexcept {
  const Locked locked;
  state.visit(address, length, [](const Range& range) { state.file.punch(range.offset, range.length); });
}

/// MADV_FREE, which only private memory knows. It may discard the contents at once.
int free_lazily(void* address, std::size_t length) noexcept {
  const Locked locked;
  int result = 0;
  std::uintptr_t done = number(address);
  const auto leave = [&](std::uintptr_t end) {
    if (end > done && raw_madvise(pointer(done), end - done, MADV_FREE) != 0) result = -1;
  };
  state.visit(address, length, [&](const Range& range) {
    leave(range.start);
    state.file.punch(range.offset, range.length);
    done = std::max(done, range.end());
  });
  leave(number(address) + length);
  return result;
}

/// MADV_WIPEONFORK, which only private memory knows. Programs ask for it before they use the memory, so it can still
/// become private.
void make_private_if_unused(void* address, std::size_t length) noexcept {
  const Locked locked;
  bool unused = state.ranges.covers(number(address), length);
  state.ranges.visit(number(address), length, [&unused](const Range& range) {
    unused = unused && !state.file.has_data(range.offset, range.length);
  });
  if (!unused) return;
  raw_mmap(address, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  state.ranges.remove(number(address), length, [](const Range& /*range*/) {});
}

int protection_of(const void* address) noexcept {
  AddressMap map;
  MappedRange range;
  return map.find(number(address), range) ? range.protection : PROT_READ | PROT_WRITE;
}

/// Copies the pages of `from` that are in memory.
bool copy_pages(void* to, const void* from, std::size_t length) noexcept {
  bool copied = true;
  state.ranges.visit(number(from), length, [&](const Range& range) {
    std::uintptr_t target = number(to) + (range.start - number(from));
    std::uint64_t offset = range.offset;
    const std::uint64_t end = range.offset + range.length;
    while (copied && offset < end && state.file.has_data(offset, end - offset)) {
      // Pages without data cost a copy of zeroes only in the pieces that have some.
      const std::size_t piece = std::min<std::uint64_t>(end - offset, std::size_t{1} << 20);
      if (state.file.has_data(offset, piece)) {
        copied =
            pread(state.file.fd(), pointer(target), piece, static_cast<off_t>(offset)) == static_cast<ssize_t>(piece);
      }
      target += piece;
      offset += piece;
    }
  });
  return copied;
}

/// mremap() of memory in the file. The kernel would extend the mapping to the next part of the file, which belongs to
/// other memory, so memory that grows or moves gets a new part.
void* remap_own(void* old, std::size_t old_length, std::size_t length, int flags, void* wanted) noexcept {
  const auto fail = [](int error) {
    errno = error;
    return MAP_FAILED;
  };
  constexpr int kKnown = MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP;
  const bool fixed = (flags & MREMAP_FIXED) != 0;
  const bool keeps = (flags & MREMAP_DONTUNMAP) != 0;
  old_length = in_pages(old_length);
  length = in_pages(length);
  const bool needs_move = fixed || keeps;
  if ((flags & ~kKnown) != 0 || number(old) % kPage != 0 || length == 0 || old_length == 0) return fail(EINVAL);
  if (needs_move && (flags & MREMAP_MAYMOVE) == 0) return fail(EINVAL);
  if (keeps && old_length != length) return fail(EINVAL);
  if (fixed && (number(wanted) % kPage != 0 ||
                (number(wanted) < number(old) + old_length && number(old) < number(wanted) + length))) {
    return fail(EINVAL);
  }
  if (!needs_move && length <= old_length) {
    if (length < old_length) unmap(pointer(number(old) + length), old_length - length);
    return old;
  }
  if ((flags & MREMAP_MAYMOVE) == 0) return fail(ENOMEM);
  const Locked locked;
  if (!state.ranges.covers(number(old), old_length)) return fail(EFAULT);
  const int protection = protection_of(old);
  void* const moved = map_own(fixed ? wanted : nullptr, length, fixed ? MAP_FIXED : 0);
  if (moved == nullptr) return fail(ENOMEM);
  if (!copy_pages(moved, old, std::min(old_length, length))) {
    unmap(moved, length);
    return fail(ENOMEM);
  }
  if (protection != (PROT_READ | PROT_WRITE)) mprotect(moved, length, protection);
  if (keeps) {
    discard(old, old_length);
  } else {
    unmap(old, old_length);
  }
  return moved;
}

}  // namespace

void* map(void* address, std::size_t length, int protection, int flags, int fd, off_t offset) noexcept {
  if (state.is_active() && is_plain(protection, flags)) {
    const int error = errno;
    void* const memory = map_own(address, length, flags & kHints);
    errno = error;
    if (memory != nullptr) return memory;
  }
  const auto call = [&] {
    return raw_mmap(address, length, protection, flags, fd, static_cast<std::uint64_t>(offset));
  };
  if ((flags & MAP_FIXED) == 0 || !state.file.exists()) return call();
  // Locked until it is forgotten, as in unmap().
  const Locked locked;
  void* const memory = call();
  if (memory != MAP_FAILED) forget_mapped(memory, length);
  return memory;
}

int unmap(void* address, std::size_t length) noexcept {
  if (!state.file.exists()) return raw_munmap(address, length);
  // Locked until it is forgotten. Otherwise another thread could get the address for new memory of the file, and that
  // would be forgotten.
  const Locked locked;
  const int result = raw_munmap(address, length);
  if (result == 0) forget_mapped(address, length);
  return result;
}

void* remap(void* old, std::size_t old_length, std::size_t length, int flags, void* wanted) noexcept {
  if (!state.file.exists()) return raw_mremap(old, old_length, length, flags, wanted);
  const Locked locked;
  bool has = false;
  // A length of 0 would copy the mapping; private memory refuses that.
  state.ranges.visit(number(old), std::max(in_pages(old_length), kPage),
                     [&has](const Range& /*range*/) { has = true; });
  if (has) return remap_own(old, old_length, length, flags, wanted);
  void* const memory = raw_mremap(old, old_length, length, flags, wanted);
  if (memory != MAP_FAILED && (flags & MREMAP_FIXED) != 0) forget_mapped(memory, length);
  return memory;
}

int advise(void* address, std::size_t length, int advice) noexcept {
  const bool may_matter = advice == MADV_DONTNEED || advice == MADV_FREE || advice == MADV_WIPEONFORK;
  if (!may_matter || number(address) % kPage != 0 || length > PTRDIFF_MAX || !has_own(address, in_pages(length))) {
    return raw_madvise(address, length, advice);
  }
  length = in_pages(length);
  if (advice == MADV_FREE) return free_lazily(address, length);
  if (advice == MADV_WIPEONFORK) make_private_if_unused(address, length);
  const int result = raw_madvise(address, length, advice);
  if (result == 0 && advice == MADV_DONTNEED) discard(address, length);
  return result;
}

}  // namespace rdmacomm::softdev::own

namespace own = rdmacomm::softdev::own;

RDMACOMM_REPLACES void* mmap(void* address, std::size_t length, int protection, int flags, int fd,
                             off_t offset) noexcept {
  return own::map(address, length, protection, flags, fd, offset);
}

RDMACOMM_REPLACES void* mmap64(void* address, std::size_t length, int protection, int flags, int fd,
                               off64_t offset) noexcept {
  return own::map(address, length, protection, flags, fd, offset);
}

RDMACOMM_REPLACES int munmap(void* address, std::size_t length) noexcept {
  return own::unmap(address, length);
}

RDMACOMM_REPLACES void* mremap(void* old, std::size_t old_length, std::size_t length, int flags, ...) noexcept {
  void* wanted = nullptr;
  if ((flags & (MREMAP_FIXED | MREMAP_DONTUNMAP)) != 0) {
    va_list more;
    va_start(more, flags);
    wanted = va_arg(more, void*);
    va_end(more);
  }
  return own::remap(old, old_length, length, flags, wanted);
}

RDMACOMM_REPLACES int madvise(void* address, std::size_t length, int advice) noexcept {
  return own::advise(address, length, advice);
}
