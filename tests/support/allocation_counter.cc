#include "support/allocation_counter.h"

#include "base/sanitizer.h"

// clang links the thread sanitizer's own operators into each program, and they cannot be replaced. So the sanitizer is
// asked to report its allocations. That counts malloc() as well.
#if defined(RDMACOMM_THREAD_SANITIZER) && defined(__clang__)
#define RDMACOMM_COUNT_BY_HOOKS 1
#include <sanitizer/allocator_interface.h>
#endif

#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <new>

namespace {

thread_local std::uint64_t allocations = 0;
std::atomic<std::int64_t> held{0};

// State of FailingAllocation. The name and the length change only while `armed` is false.
std::atomic<bool> armed{false};
std::atomic<int> left{0};
char starved_thread[16] = {};
std::size_t failing_bytes = 0;

[[maybe_unused]] bool has_to_fail(std::size_t bytes) noexcept {
  if (!armed.load(std::memory_order_acquire) || bytes < failing_bytes) return false;
  char name[sizeof(starved_thread)] = {};
  if (pthread_getname_np(pthread_self(), name, sizeof(name)) != 0 || std::strcmp(name, starved_thread) != 0)
    return false;
  return left.fetch_sub(1) == 1;
}

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
// Neither this nor the operators below may be inlined: the compiler would report malloc and delete as a mismatch.
[[gnu::noinline]] void* counted(std::size_t bytes, std::size_t alignment) noexcept {
  ++allocations;
  held.fetch_add(1, std::memory_order_relaxed);
  if (alignment <= alignof(std::max_align_t)) return std::malloc(bytes);
  return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}
[[gnu::noinline]] void* counted_or_throw(std::size_t bytes, std::size_t alignment = 1) {
  void* const memory = has_to_fail(bytes) ? nullptr : counted(bytes, alignment);
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
// These replace the standard library's operators in the whole program. The forms that are missing here call these.
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

FailingAllocation::FailingAllocation(const AllocationToFail& which) {
  std::strncpy(starved_thread, which.thread.c_str(), sizeof(starved_thread) - 1);
  failing_bytes = which.from_bytes;
  left.store(which.number);
  armed.store(true, std::memory_order_release);
}

FailingAllocation::~FailingAllocation() {
  armed.store(false, std::memory_order_release);
}

bool FailingAllocation::possible() noexcept {
#ifdef RDMACOMM_COUNT_BY_HOOKS
  return false;
#else
  return true;
#endif
}

bool FailingAllocation::reached() const noexcept {
  return left.load() <= 0;
}

}  // namespace rdmacomm::testing
