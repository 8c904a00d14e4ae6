#include "softdev/preload/memory/own_state.h"

#include <link.h>
#include <sys/auxv.h>

#include "softdev/preload/memory/raw_memory.h"
#include "softdev/preload/plain_text.h"
#include "softdev/shared/own_memory.h"

namespace rdmacomm::softdev::own {

constinit Ranges all_ranges;
constinit OwnState state;

namespace {

using preload::begins_with;

/// True if a library that the object needs is libibverbs.
bool needs_verbs(const link_map& object) noexcept {
  const char* names = nullptr;
  for (const ElfW(Dyn)* entry = object.l_ld; entry->d_tag != DT_NULL; ++entry) {
    if (entry->d_tag != DT_STRTAB) continue;
    // The loader adds the base address on most systems, but not for the vDSO.
    const ElfW(Addr) place = entry->d_un.d_ptr;
    names = reinterpret_cast<const char*>(place < object.l_addr ? object.l_addr + place : place);
  }
  for (const ElfW(Dyn)* entry = object.l_ld; names != nullptr && entry->d_tag != DT_NULL; ++entry) {
    if (entry->d_tag == DT_NEEDED && begins_with(names + entry->d_un.d_val, "libibverbs.so.1")) return true;
  }
  return false;
}

/// A program that is linked with libibverbs uses the file from its beginning. Any other program under softdev-run, such
/// as a shell, uses it only if it asks for devices. It calls no other library, see plain_text.h.
[[gnu::constructor]] void begin_early() noexcept {
  for (const link_map* object = _r_debug.r_map; object != nullptr; object = object->l_next) {
    if (object->l_name == nullptr || object->l_ld == nullptr) continue;
    const char* const name = preload::file_name(object->l_name);
    const bool is_front = begins_with(name, "librdmacomm_softdev_preload") || begins_with(name, "libibverbs.so");
    if (!is_front && !begins_with(name, "linux-vdso") && needs_verbs(*object)) return begin();
  }
}

int descriptor() noexcept {
  const Locked locked;
  return state.file.fd();
}

}  // namespace

void begin() noexcept {
  if (getauxval(AT_SECURE) != 0 || sysconf(_SC_PAGESIZE) != static_cast<long>(kPage)) return;
  const Locked locked;
  if (state.file.create()) state.active.store(true, std::memory_order_relaxed);
}

Locked::Locked() noexcept : nested_(state.owner.load(std::memory_order_relaxed) == pthread_self()) {
  if (nested_) return;
  pthread_mutex_lock(&state.lock);
  state.owner.store(pthread_self(), std::memory_order_relaxed);
}

Locked::~Locked() {
  if (nested_) return;
  state.owner.store(pthread_t{}, std::memory_order_relaxed);
  pthread_mutex_unlock(&state.lock);
}

void* map_own(void* address, std::size_t length, int flags) noexcept {
  if (length == 0 || length > PTRDIFF_MAX || !is_affordable(length)) return nullptr;
  length = in_pages(length);
  const Locked locked;
  std::uint64_t offset = 0;
  if (!state.file.take(length, kPage, offset)) return nullptr;
  void* const memory = state.file.map(address, length, flags, offset);
  if (memory == nullptr) return nullptr;
  const auto punch = [](const Range& range) { state.file.punch(range.offset, range.length); };
  state.ranges.remove(number(memory), length, punch);  // unmapped by the bare system call
  if (state.ranges.add({number(memory), length, offset})) return memory;
  raw_munmap(memory, length);
  return nullptr;
}

void forget_mapped(const void* address, std::size_t length) noexcept {
  if (!state.file.exists()) return;
  const Locked locked;
  state.ranges.remove(number(address), in_pages(length),
                      [](const Range& range) { state.file.punch(range.offset, range.length); });
}

}  // namespace rdmacomm::softdev::own

extern "C" {
[[gnu::visibility("default")]] extern const rdmacomm::softdev::OwnMemory rdmacomm_own_memory;
const rdmacomm::softdev::OwnMemory rdmacomm_own_memory{.begin = rdmacomm::softdev::own::begin,
                                                       .descriptor = rdmacomm::softdev::own::descriptor};
}
