// The calls that free memory, in front of those of the C library.
#include <malloc.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstdarg>

#include "softdev/check/inside.h"
#include "softdev/check/locked.h"
#include "softdev/check/next.h"
#include "softdev/check/registrations.h"
#include "softdev/check/requests.h"

namespace check = rdmacomm::softdev::check;

namespace {

/// The next library's functions. Found by the first call, which the program's loader makes while there is one thread.
struct Next {
  decltype(::free)* free;
  decltype(::realloc)* realloc;
  decltype(::malloc_usable_size)* usable_size;
};

const Next& next_functions() noexcept {
  static Next found{};
  if (found.free == nullptr) [[unlikely]] {
    const check::Inside inside;
    found = {check::next<decltype(::free)>("free"), check::next<decltype(::realloc)>("realloc"),
             check::next<decltype(::malloc_usable_size)>("malloc_usable_size")};
  }
  return found;
}

std::uint64_t number(const void* address) noexcept {
  return reinterpret_cast<std::uint64_t>(address);
}

/// A block of malloc() that is about to be freed. Nothing to do for most blocks.
struct Block {
  explicit Block(void* memory) : begin(number(memory)), born(check::recorded()) {
    if (memory == nullptr || check::Inside::is_inside()) return;
    if (check::may_be_registered(begin, UINT64_MAX) || check::is_wr_id(begin))
      length = next_functions().usable_size(memory);
  }

  /// After it was freed.
  void note(const char* how) const {
    if (length == 0) return;
    const bool is_registered = check::may_be_registered(begin, begin + length);
    if (!is_registered && !check::is_wr_id(begin)) return;
    const int error = errno;
    const check::StackId where = check::capture_stack();
    const check::Locked locked;
    check::requests().mark_wr_id_freed(begin, born, where);
    if (is_registered) check::note_freed(begin, length, how, false, born, where);
    errno = error;
  }

  std::uint64_t begin;
  std::uint64_t born;
  std::uint64_t length = 0;
};

void note_unmapped(void* address, std::size_t length, const char* how, std::uint64_t born) {
  if (check::Inside::is_inside() || !check::may_be_registered(number(address), number(address) + length)) return;
  const int error = errno;
  const check::StackId where = check::capture_stack();
  const check::Locked locked;
  check::note_freed(number(address), length, how, true, born, where);
  errno = error;
}

}  // namespace

RDMACOMM_CHECKS void free(void* memory) noexcept {
  if (memory == nullptr) return;
  const Block block(memory);
  next_functions().free(memory);
  block.note("free()");
}

RDMACOMM_CHECKS void* realloc(void* memory, std::size_t length) noexcept {
  const Block block(memory);
  void* const moved = next_functions().realloc(memory, length);
  if (moved != memory && (moved != nullptr || length == 0)) block.note("realloc()");
  return moved;
}

RDMACOMM_CHECKS int munmap(void* address, std::size_t length) noexcept {
  RDMACOMM_BEHIND(munmap);
  const std::uint64_t born = check::recorded();
  const int result = behind(address, length);
  if (result == 0) note_unmapped(address, length, "munmap()", born);
  return result;
}

RDMACOMM_CHECKS void* mremap(void* old, std::size_t old_length, std::size_t length, int flags, ...) noexcept {
  RDMACOMM_BEHIND(mremap);
  std::va_list more;
  va_start(more, flags);
  void* const wanted = va_arg(more, void*);  // read only if MREMAP_FIXED is set
  va_end(more);
  const std::uint64_t born = check::recorded();
  void* const moved = behind(old, old_length, length, flags, wanted);
  if (moved != MAP_FAILED && moved != old) note_unmapped(old, old_length, "mremap()", born);
  return moved;
}
