#include "softdev/memory/application_memory.h"

#include <dlfcn.h>

#include "softdev/shared/address_map.h"
#include "softdev/shared/own_memory.h"

namespace rdmacomm::softdev {
namespace {

/// nullptr: the library is not loaded, or has another version.
const OwnMemory* loaded() {
  static const auto* const found = static_cast<const OwnMemory*>(dlsym(RTLD_DEFAULT, "rdmacomm_own_memory"));
  return found != nullptr && found->version == OwnMemory::kVersion ? found : nullptr;
}

Reach reach_of_other(const MappedRange& range) {
  if (range.inode == 0) return range.shared ? Reach::kSharedMapping : Reach::kPrivate;
  return range.shared ? Reach::kSharedMapping : Reach::kFileMapping;
}

}  // namespace

ReachCounts& reach_counts() noexcept {
  static constinit ReachCounts counts;
  return counts;
}

void begin_own_memory() {
  if (const OwnMemory* const library = loaded(); library != nullptr) library->begin();
}

int own_memory_fd() {
  const OwnMemory* const library = loaded();
  return library == nullptr ? -1 : library->descriptor();
}

Reach locate_own_memory(const void* address, std::size_t length, std::uint64_t& offset) {
  FileIdentity file;
  if (!FileIdentity::of(own_memory_fd(), file)) return Reach::kOff;
  const auto start = reinterpret_cast<std::uintptr_t>(address);
  AddressMap map;
  MappedRange range;
  for (std::uintptr_t at = start; at < start + length; at = range.end) {
    // The memory ended in between if the next mapping begins later. Then it cannot be registered anyway.
    if (!map.find(at, range) || range.start > at) return Reach::kPrivate;
    if (!range.shared || !file.is_mapped_in(range)) return at == start ? reach_of_other(range) : Reach::kSeveral;
    const std::uint64_t here = range.offset + (at - range.start);
    if (at == start) offset = here;
    if (here != offset + (at - start)) return Reach::kSeveral;
  }
  return Reach::kMapped;
}

}  // namespace rdmacomm::softdev
