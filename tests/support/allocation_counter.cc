#include "support/allocation_counter.h"

#include "base/sanitizer.h"

// clang links operators of the thread sanitizer's own into each program, which cannot be replaced: it is asked to say what it
// allocates. That counts malloc() as well.
#if defined(RDMACOMM_THREAD_SANITIZER) && defined(__clang__)
#define RDMACOMM_COUNT_BY_HOOKS 1
#include <sanitizer/allocator_interface.h>
#endif

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace {

thread_local std::uint64_t allocations = 0;
std::atomic<std::int64_t> held{0};

#ifdef RDMACOMM_COUNT_BY_HOOKS
void count_one(const volatile void* /*memory*/, std::size_t /*bytes*/) {
  ++allocations;
  held.fetch_add(1, std::memory_order_relaxed);
}
void count_release(const volatile void* memory) {
  if (memory != nullptr) held.fetch_sub(1, std::memory_order_relaxed);
}
[[maybe_unused]] const int hooks = __sanitizer_install_malloc_and_free_hooks(count_one, count_release);
#else
// Not inlined, nor the operators below: the compiler would take malloc and delete for a mismatch.
[[gnu::noinline]] void* counted(std::size_t bytes, std::size_t alignment) noexcept {
  ++allocations;
  held.fetch_add(1, std::memory_order_relaxed);
  if (alignment <= alignof(std::max_align_t)) return std::malloc(bytes);
  return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}
[[gnu::noinline]] void* counted_or_throw(std::size_t bytes, std::size_t alignment = 1) {
  void* const memory = counted(bytes, alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
[[gnu::noinline]] void release(void* memory) noexcept {
  if (memory != nullptr) held.fetch_sub(1, std::memory_order_relaxed);
  std::free(memory);
}

#endif

}  // namespace

#ifndef RDMACOMM_COUNT_BY_HOOKS
// In place of the standard library's, for this whole program. The forms that are not here end in these.
void* operator new(std::size_t bytes) {
  return counted_or_throw(bytes);
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return counted(bytes, 1);
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return counted_or_throw(bytes, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t bytes) {
  return counted_or_throw(bytes);
}
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept {
  return counted(bytes, 1);
}
void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  return counted_or_throw(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept {
  release(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  release(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
  release(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  release(memory);
}
void operator delete[](void* memory) noexcept {
  release(memory);
}
void operator delete[](void* memory, std::size_t) noexcept {
  release(memory);
}
void operator delete[](void* memory, std::align_val_t) noexcept {
  release(memory);
}
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept {
  release(memory);
}
#endif

namespace rdmacomm::testing {

std::uint64_t allocations_of_this_thread() noexcept {
  return allocations;
}

std::int64_t held_allocations() noexcept {
  return held.load(std::memory_order_relaxed);
}

}  // namespace rdmacomm::testing
