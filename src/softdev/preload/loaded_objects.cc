#include "softdev/preload/loaded_objects.h"

#include <elf.h>
#include <link.h>

#include <cstdint>

#include "softdev/preload/plain_text.h"

namespace rdmacomm::softdev::preload {
namespace {

// Nothing here calls a function of another library, also not dl_iterate_phdr(), see plain_text.h. The dynamic linker's
// list of objects only grows at its end, and this library and the C library are among the first, so no lock is needed.

/// The parts of a loaded library's dynamic section that a lookup needs. The library's file is the system's, or the
/// program's own, so its tables are not checked. The dynamic linker does not check them either.
struct Tables {
  const ElfW(Sym) * symbols = nullptr;
  const char* names = nullptr;
  const std::uint32_t* hashes = nullptr;  // DT_GNU_HASH
  const ElfW(Half) * versions = nullptr;
};

Tables tables_of(const link_map& object) {
  Tables tables;
  for (const ElfW(Dyn)* entry = object.l_ld; entry != nullptr && entry->d_tag != DT_NULL; ++entry) {
    // The dynamic linker has replaced offsets by addresses, except in the kernel's own library (vDSO).
    const ElfW(Addr) address = entry->d_un.d_ptr;
    if (address < object.l_addr) continue;
    if (entry->d_tag == DT_SYMTAB) tables.symbols = reinterpret_cast<const ElfW(Sym)*>(address);
    if (entry->d_tag == DT_STRTAB) tables.names = reinterpret_cast<const char*>(address);
    if (entry->d_tag == DT_GNU_HASH) tables.hashes = reinterpret_cast<const std::uint32_t*>(address);
    if (entry->d_tag == DT_VERSYM) tables.versions = reinterpret_cast<const ElfW(Half)*>(address);
  }
  return tables;
}

std::uint32_t gnu_hash(const char* name) {
  std::uint32_t hash = 5381;
  for (; *name != '\0'; ++name) hash = hash * 33 + static_cast<unsigned char>(*name);
  return hash;
}

bool is_default_function(const Tables& tables, std::uint32_t index, const char* name) {
  constexpr ElfW(Half) kHidden = 0x8000;  // this bit marks every version except the default one
  const ElfW(Sym)& symbol = tables.symbols[index];
  if (tables.versions != nullptr && (tables.versions[index] & kHidden) != 0) return false;
  return symbol.st_shndx != SHN_UNDEF && ELF64_ST_TYPE(symbol.st_info) == STT_FUNC &&
         is_equal(tables.names + symbol.st_name, name);
}

void* function_of(const link_map& object, const char* name) {
  const Tables tables = tables_of(object);
  if (tables.symbols == nullptr || tables.names == nullptr || tables.hashes == nullptr) return nullptr;
  const std::uint32_t buckets = tables.hashes[0];
  const std::uint32_t first_hashed = tables.hashes[1];
  const std::uint32_t filter_words = tables.hashes[2];
  if (buckets == 0) return nullptr;
  const auto* const starts =
      reinterpret_cast<const std::uint32_t*>(reinterpret_cast<const ElfW(Addr)*>(tables.hashes + 4) + filter_words);
  const std::uint32_t* const chain = starts + buckets;
  const std::uint32_t hash = gnu_hash(name);
  std::uint32_t index = starts[hash % buckets];
  if (index < first_hashed) return nullptr;
  for (;; ++index) {
    const std::uint32_t at = chain[index - first_hashed];
    if ((at | 1) == (hash | 1) && is_default_function(tables, index, name))
      return reinterpret_cast<void*>(object.l_addr + tables.symbols[index].st_value);
    if ((at & 1) != 0) return nullptr;  // the lowest bit marks the end of a chain
  }
}

}  // namespace

void* function_of_file(const char* file, const char* name) noexcept {
  for (const link_map* object = _r_debug.r_map; object != nullptr; object = object->l_next) {
    if (object->l_name == nullptr || !is_equal(file_name(object->l_name), file)) continue;
    if (void* const found = function_of(*object, name)) return found;
  }
  return nullptr;
}

void* function_of_this_library(const char* name) noexcept {
  const link_map* object = _r_debug.r_map;
  while (object != nullptr && object->l_ld != _DYNAMIC) object = object->l_next;
  return object == nullptr ? nullptr : function_of(*object, name);
}

}  // namespace rdmacomm::softdev::preload
