// malloc() and its relatives: allocations of a page and more lie in the file, smaller ones go to the next library.
#include <malloc.h>
#include <stdlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "softdev/preload/memory/next_function.h"
#include "softdev/preload/memory/own_state.h"
#include "softdev/preload/memory/raw_memory.h"

namespace rdmacomm::softdev::own {
namespace {

/// The next library's functions.
struct NextMalloc {
  decltype(::malloc)* malloc;
  decltype(::calloc)* calloc;
  decltype(::realloc)* realloc;
  decltype(::free)* free;
  decltype(::memalign)* memalign;
  decltype(::posix_memalign)* posix_memalign;
  decltype(::aligned_alloc)* aligned_alloc;
  decltype(::malloc_usable_size)* usable_size;
};

/// dlsym() may allocate memory before its answer is known. This memory is never freed.
alignas(64) constinit std::byte first_memory[4096];
constinit std::size_t first_used = 0;
constinit bool is_searching = false;

bool is_first(const void* memory) noexcept {
  return memory >= first_memory && memory < first_memory + sizeof(first_memory);
}

void* allocate_first(std::size_t length) noexcept {
  const std::size_t bytes = (length + 15) / 16 * 16;
  if (bytes < length || sizeof(first_memory) - first_used < bytes) return nullptr;
  first_used += bytes;
  return first_memory + first_used - bytes;
}

NextMalloc search() noexcept {
  is_searching = true;
  const NextMalloc found{next_function<decltype(::malloc)>("malloc"),
                         next_function<decltype(::calloc)>("calloc"),
                         next_function<decltype(::realloc)>("realloc"),
                         next_function<decltype(::free)>("free"),
                         next_function<decltype(::memalign)>("memalign"),
                         next_function<decltype(::posix_memalign)>("posix_memalign"),
                         next_function<decltype(::aligned_alloc)>("aligned_alloc"),
                         next_function<decltype(::malloc_usable_size)>("malloc_usable_size")};
  is_searching = false;
  return found;
}

/// The first call is made by the program's loader, while there is one thread.
constinit NextMalloc found_next{};
const NextMalloc& next() noexcept {
  if (found_next.malloc == nullptr) [[unlikely]]
    found_next = search();
  return found_next;
}

void* allocate(std::size_t length, std::size_t alignment, bool& is_zeroed) noexcept {
  const Locked locked;
  return state.blocks.allocate(length, alignment, is_zeroed);
}

/// A block of the file; nullptr: the next library allocates the memory.
void* allocate_own(std::size_t length, std::size_t alignment = 1) noexcept {
  bool is_zeroed = false;
  const bool is_ours = state.is_active() && alignment <= Segment::kBytes && alignment != 0 &&
                       (alignment & (alignment - 1)) == 0 && (length >= kPage || (alignment >= kPage && length != 0));
  return is_ours ? allocate(length, alignment, is_zeroed) : nullptr;
}

/// Resizes a block of this library.
void* reallocate_own(const Segment& segment, void* block, std::size_t length) noexcept {
  const std::size_t bytes = state.blocks.size(segment, block);
  if (bytes == 0) return next().realloc(block, length);  // reports the error
  if (length <= bytes && length > bytes / 2) return block;
  // A block that has grown often grows again. Pages cost nothing before they are used, and each move copies the block.
  constexpr std::size_t kLeastWithRoom = std::size_t{64} << 10;
  void* moved = nullptr;
  if (length > bytes && length >= kLeastWithRoom && length < PTRDIFF_MAX / 2) moved = allocate_own(length + length / 2);
  if (moved == nullptr) moved = malloc(length);
  if (moved == nullptr) return nullptr;
  std::memcpy(moved, block, std::min(bytes, length));
  ::free(block);
  return moved;
}

}  // namespace
}  // namespace rdmacomm::softdev::own

namespace own = rdmacomm::softdev::own;

RDMACOMM_REPLACES void* malloc(std::size_t length) noexcept {
  if (void* const block = own::allocate_own(length); block != nullptr) return block;
  return own::is_searching ? own::allocate_first(length) : own::next().malloc(length);
}

RDMACOMM_REPLACES void* calloc(std::size_t count, std::size_t size) noexcept {
  std::size_t length = 0;
  if (__builtin_mul_overflow(count, size, &length)) {
    errno = ENOMEM;
    return nullptr;
  }
  if (own::is_searching) return own::allocate_first(length);
  if (own::state.is_active() && length >= own::kPage) {
    bool is_zeroed = false;
    void* const block = own::allocate(length, own::kPage, is_zeroed);
    if (block != nullptr) return is_zeroed ? block : std::memset(block, 0, length);
  }
  return own::next().calloc(count, size);
}

RDMACOMM_REPLACES void free(void* memory) noexcept {
  if (memory == nullptr || own::is_first(memory)) return;
  if (const own::Segment* const segment = own::state.blocks.find(memory); segment != nullptr) {
    const int error = errno;
    const own::Locked locked;
    const bool freed = own::state.blocks.free(*segment, memory);
    errno = error;
    if (freed) return;
  }
  own::next().free(memory);  // reports an address that is no block
}

RDMACOMM_REPLACES void* realloc(void* memory, std::size_t length) noexcept {
  if (memory == nullptr) return malloc(length);
  if (own::is_first(memory)) {
    void* const moved = malloc(length);
    const auto* const end = own::first_memory + sizeof(own::first_memory);
    const auto most = static_cast<std::size_t>(end - static_cast<std::byte*>(memory));
    return moved == nullptr ? nullptr : std::memcpy(moved, memory, std::min(length, most));
  }
  const own::Segment* const segment = own::state.blocks.find(memory);
  if (segment != nullptr && length == 0) {
    free(memory);
    return nullptr;
  }
  if (segment != nullptr) return own::reallocate_own(*segment, memory, length);
  void* const block = own::allocate_own(length);
  if (block == nullptr) return own::next().realloc(memory, length);
  std::memcpy(block, memory, std::min(length, own::next().usable_size(memory)));
  own::next().free(memory);
  return block;
}

RDMACOMM_REPLACES void* reallocarray(void* memory, std::size_t count, std::size_t size) noexcept {
  std::size_t length = 0;
  if (!__builtin_mul_overflow(count, size, &length)) return realloc(memory, length);
  errno = ENOMEM;
  return nullptr;
}

RDMACOMM_REPLACES int posix_memalign(void** memory, std::size_t alignment, std::size_t length) noexcept {
  void* const block = own::allocate_own(length, alignment);
  if (block == nullptr || alignment < sizeof(void*)) return own::next().posix_memalign(memory, alignment, length);
  *memory = block;
  return 0;
}

RDMACOMM_REPLACES void* memalign(std::size_t alignment, std::size_t length) noexcept {
  void* const block = own::allocate_own(length, alignment);
  return block != nullptr ? block : own::next().memalign(alignment, length);
}

RDMACOMM_REPLACES void* aligned_alloc(std::size_t alignment, std::size_t length) noexcept {
  void* const block = own::allocate_own(length, alignment);
  return block != nullptr ? block : own::next().aligned_alloc(alignment, length);
}

RDMACOMM_REPLACES void* valloc(std::size_t length) noexcept {
  return memalign(own::kPage, length);
}

RDMACOMM_REPLACES void* pvalloc(std::size_t length) noexcept {
  if (length > PTRDIFF_MAX) {
    errno = ENOMEM;
    return nullptr;
  }
  return memalign(own::kPage, own::in_pages(length));
}

RDMACOMM_REPLACES std::size_t malloc_usable_size(void* memory) noexcept {
  if (memory == nullptr || own::is_first(memory)) return 0;
  const own::Segment* const segment = own::state.blocks.find(memory);
  return segment != nullptr ? own::state.blocks.size(*segment, memory) : own::next().usable_size(memory);
}
