#include "softdev/preload/loaded_objects.h"

#include <elf.h>
#include <link.h>

#include <cstdint>
#include <cstring>
#include <functional>

namespace rdmacomm::softdev::preload {
namespace {

/// The parts of a loaded library's dynamic section that a lookup needs. The library's file is the system's, or the
/// program's own, so its tables are not checked. The dynamic linker does not check them either.
struct Tables {
  const ElfW(Sym) * symbols = nullptr;
  const char* names = nullptr;
  const std::uint32_t* hashes = nullptr;  // DT_GNU_HASH
  const ElfW(Half) * versions = nullptr;
};

const ElfW(Dyn) * dynamic_section(const dl_phdr_info& object) {
  for (int i = 0; i < object.dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = object.dlpi_phdr[i];
    if (header.p_type == PT_DYNAMIC) return reinterpret_cast<const ElfW(Dyn)*>(object.dlpi_addr + header.p_vaddr);
  }
  return nullptr;
}

Tables tables_of(const dl_phdr_info& object) {
  Tables tables;
  const ElfW(Dyn)* entry = dynamic_section(object);
  for (; entry != nullptr && entry->d_tag != DT_NULL; ++entry) {
    // The dynamic linker has replaced offsets by addresses, except in the kernel's own library (vDSO).
    const ElfW(Addr) address = entry->d_un.d_ptr;
    if (address < object.dlpi_addr) continue;
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
         std::strcmp(tables.names + symbol.st_name, name) == 0;
}

void* function_of(const dl_phdr_info& object, const char* name) {
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
      return reinterpret_cast<void*>(object.dlpi_addr + tables.symbols[index].st_value);
    if ((at & 1) != 0) return nullptr;  // the lowest bit marks the end of a chain
  }
}

struct Search {
  std::string_view file;         // if not empty
  const void* inside = nullptr;  // else
  const char* name = nullptr;
  void* found = nullptr;
};

bool contains(const dl_phdr_info& object, const void* address) {
  const auto at = reinterpret_cast<ElfW(Addr)>(address);
  for (int i = 0; i < object.dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = object.dlpi_phdr[i];
    if (header.p_type == PT_LOAD && at - object.dlpi_addr - header.p_vaddr < header.p_memsz) return true;
  }
  return false;
}

std::string_view file_name(const char* path) {
  const std::string_view whole = path == nullptr ? "" : path;
  const std::size_t slash = whole.rfind('/');
  return slash == std::string_view::npos ? whole : whole.substr(slash + 1);
}

int look(dl_phdr_info* object, std::size_t /*size*/, void* of) {
  Search& search = *static_cast<Search*>(of);
  const bool wanted = search.file.empty() ? contains(*object, search.inside)  //
                                          : file_name(object->dlpi_name) == search.file;
  if (wanted) search.found = function_of(*object, search.name);
  return search.found != nullptr ? 1 : 0;
}

}  // namespace

void* function_of_file(std::string_view file, const char* name) noexcept {
  Search search{file, nullptr, name, nullptr};
  dl_iterate_phdr(look, &search);
  return search.found;
}

void* function_of_library_at(const void* address, const char* name) noexcept {
  Search search{"", address, name, nullptr};
  dl_iterate_phdr(look, &search);
  return search.found;
}

}  // namespace rdmacomm::softdev::preload
