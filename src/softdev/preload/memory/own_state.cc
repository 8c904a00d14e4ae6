#include "softdev/preload/memory/own_state.h"

#include <link.h>
#include <sys/auxv.h>

#include <cstring>
#include <string_view>

#include "softdev/preload/memory/raw_memory.h"
#include "softdev/shared/own_memory.h"

namespace rdmacomm::softdev::own {

constinit Ranges all_ranges;
constinit OwnState state;

namespace {

std::string_view file_name(std::string_view path) noexcept {
  path.remove_prefix(path.rfind('/') + 1);
  return path;
}

/// True if a library that the object needs is libibverbs.
bool needs_verbs(const dl_phdr_info& object) noexcept {
  const ElfW(Dyn)* dynamic = nullptr;
  for (int i = 0; i < object.dlpi_phnum; ++i) {
    if (object.dlpi_phdr[i].p_type == PT_DYNAMIC) {
      dynamic = reinterpret_cast<const ElfW(Dyn)*>(object.dlpi_addr + object.dlpi_phdr[i].p_vaddr);
    }
  }
  if (dynamic == nullptr) return false;
  const char* names = nullptr;
  for (const ElfW(Dyn)* entry = dynamic; entry->d_tag != DT_NULL; ++entry) {
    if (entry->d_tag != DT_STRTAB) continue;
    // The loader adds the base address on most systems, but not for the vDSO.
    const ElfW(Addr) place = entry->d_un.d_ptr;
    names = reinterpret_cast<const char*>(place < object.dlpi_addr ? object.dlpi_addr + place : place);
  }
  for (const ElfW(Dyn)* entry = dynamic; names != nullptr && entry->d_tag != DT_NULL; ++entry) {
    if (entry->d_tag == DT_NEEDED && std::string_view(names + entry->d_un.d_val) == "libibverbs.so.1") return true;
  }
  return false;
}

int look_at(dl_phdr_info* object, std::size_t /*size*/, void* /*unused*/) noexcept {
  const std::string_view name = file_name(object->dlpi_name == nullptr ? "" : object->dlpi_name);
  // Not starts_with(), which needs a function of the C++ library.
  const auto begins_with = [name](const char* text) { return name.find(text) == 0; };
  const bool is_front = begins_with("librdmacomm_softdev_preload") || begins_with("libibverbs.so");
  return !is_front && !begins_with("linux-vdso") && needs_verbs(*object) ? 1 : 0;
}

/// A program that is linked with libibverbs uses the file from its beginning. Any other program under softdev-run, such
/// as a shell, uses it only if it asks for devices.
[[gnu::constructor]] void begin_early() noexcept {
  if (dl_iterate_phdr(look_at, nullptr) != 0) begin();
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
