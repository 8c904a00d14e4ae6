#include "softdev/check/line_numbers.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <dwarf.h>
#include <elfutils/libdw.h>
#include <elfutils/libdwfl.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace rdmacomm::softdev::check {
namespace {

/// The functions of libdw that are used here.
struct LibDw {
  decltype(dwfl_begin)* begin;
  decltype(dwfl_end)* end;
  decltype(dwfl_linux_proc_report)* report;
  decltype(dwfl_report_end)* report_end;
  decltype(dwfl_addrmodule)* module_at;
  decltype(dwfl_module_addrname)* name_at;
  decltype(dwfl_module_getsrc)* line_at;
  decltype(dwfl_lineinfo)* line_info;
  decltype(dwfl_module_addrdie)* unit_at;
  decltype(dwarf_getscopes)* scopes_at;
  decltype(dwarf_getscopes_die)* scopes_of;
  decltype(dwarf_tag)* tag;
  decltype(dwarf_diename)* name;
  decltype(dwarf_attr_integrate)* attribute;
  decltype(dwarf_formudata)* number;
  decltype(dwarf_formstring)* text;
  decltype(dwarf_getsrcfiles)* files;
  decltype(dwarf_filesrc)* file;
  decltype(dwfl_linux_proc_find_elf)* find_elf;
  decltype(dwfl_standard_find_debuginfo)* find_debuginfo;
};

template <typename Function>
bool look_up(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(library, name));
  return function != nullptr;
}

bool look_up_all(void* library, LibDw& dw) {
  return look_up(library, "dwfl_begin", dw.begin) && look_up(library, "dwfl_end", dw.end) &&
         look_up(library, "dwfl_linux_proc_report", dw.report) && look_up(library, "dwfl_report_end", dw.report_end) &&
         look_up(library, "dwfl_addrmodule", dw.module_at) && look_up(library, "dwfl_module_addrname", dw.name_at) &&
         look_up(library, "dwfl_module_getsrc", dw.line_at) && look_up(library, "dwfl_lineinfo", dw.line_info) &&
         look_up(library, "dwfl_module_addrdie", dw.unit_at) && look_up(library, "dwarf_getscopes", dw.scopes_at) &&
         look_up(library, "dwarf_getscopes_die", dw.scopes_of) && look_up(library, "dwarf_tag", dw.tag) &&
         look_up(library, "dwarf_diename", dw.name) && look_up(library, "dwarf_attr_integrate", dw.attribute) &&
         look_up(library, "dwarf_formudata", dw.number) && look_up(library, "dwarf_formstring", dw.text) &&
         look_up(library, "dwarf_getsrcfiles", dw.files) && look_up(library, "dwarf_filesrc", dw.file) &&
         look_up(library, "dwfl_linux_proc_find_elf", dw.find_elf) &&
         look_up(library, "dwfl_standard_find_debuginfo", dw.find_debuginfo);
}

/// nullptr: libdw is not installed.
const LibDw* libdw() {
  static const LibDw* const found = []() -> const LibDw* {
    void* const library = dlopen("libdw.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return nullptr;
    auto* const functions = new LibDw{};
    return look_up_all(library, *functions) ? functions : nullptr;
  }();
  return found;
}

std::string file_name(const char* path) {
  const std::string whole = path == nullptr ? "?" : path;
  return whole.substr(whole.rfind('/') + 1);  // npos + 1 is 0
}

std::string demangled(const char* name) {
  int status = 0;
  char* const plain = abi::__cxa_demangle(name, nullptr, nullptr, &status);
  std::string text = status == 0 && plain != nullptr ? plain : name;
  std::free(plain);
  constexpr std::string_view kUnnamed = "(anonymous namespace)::";
  for (std::size_t place = text.find(kUnnamed); place != std::string::npos; place = text.find(kUnnamed))
    text.erase(place, kUnnamed.size());
  // Parameters make long lines that nobody reads.
  if (const std::size_t parameters = text.find('('); parameters != std::string::npos && parameters != 0)
    text.resize(parameters);
  return text;
}

std::string at(const std::string& function, const char* file, std::uint64_t line) {
  return function + " at " + file_name(file) + ":" + std::to_string(line);
}

/// The modules of this process. They are read again if an address is in none, because the program may have loaded one.
class Modules {
 public:
  explicit Modules(const LibDw& dw) : dw_(dw) { callbacks_ = {dw.find_elf, dw.find_debuginfo, nullptr, &debug_path_}; }

  Dwfl_Module* find(Dwarf_Addr address) {
    if (all_ != nullptr) {
      if (Dwfl_Module* const known = dw_.module_at(all_, address); known != nullptr) return known;
      dw_.end(all_);
    }
    all_ = dw_.begin(&callbacks_);
    if (all_ == nullptr) return nullptr;
    dw_.report(all_, getpid());
    dw_.report_end(all_, nullptr, nullptr);
    return dw_.module_at(all_, address);
  }

 private:
  const LibDw& dw_;
  char* debug_path_ = nullptr;  // the default places
  Dwfl_Callbacks callbacks_{};
  Dwfl* all_ = nullptr;
};

/// One frame, and one more for each call that was inlined.
std::vector<std::string> frames_by_debug_information(const LibDw& dw, Dwfl_Module* module, Dwarf_Addr address) {
  std::vector<std::string> frames;
  Dwfl_Line* const line = dw.line_at(module, address);
  if (line == nullptr) return frames;
  int number = 0;
  const char* file = dw.line_info(line, nullptr, &number, nullptr, nullptr, nullptr);
  auto line_number = static_cast<std::uint64_t>(number);
  Dwarf_Addr bias = 0;
  Dwarf_Die* const unit = dw.unit_at(module, address, &bias);
  Dwarf_Die* around = nullptr;
  const int count = unit == nullptr ? 0 : dw.scopes_at(unit, address - bias, &around);
  Dwarf_Die* inner = nullptr;
  for (int i = 0; i < count && inner == nullptr; ++i) {
    const int tag = dw.tag(&around[i]);
    if (tag == DW_TAG_subprogram || tag == DW_TAG_inlined_subroutine) inner = &around[i];
  }
  Dwarf_Die* scopes = nullptr;
  const int nested = inner == nullptr ? 0 : dw.scopes_of(inner, &scopes);
  Dwarf_Files* files = nullptr;
  std::size_t file_count = 0;
  if (unit != nullptr) dw.files(unit, &files, &file_count);
  for (int i = 0; i < nested; ++i) {
    const int tag = dw.tag(&scopes[i]);
    if (tag != DW_TAG_subprogram && tag != DW_TAG_inlined_subroutine) continue;
    const char* const plain = dw.name(&scopes[i]);
    Dwarf_Attribute attribute{};
    const char* linkage = nullptr;
    if (dw.attribute(&scopes[i], DW_AT_linkage_name, &attribute) != nullptr) linkage = dw.text(&attribute);
    frames.push_back(at(linkage != nullptr ? demangled(linkage) : plain != nullptr ? plain : "?", file, line_number));
    if (tag == DW_TAG_subprogram) break;
    Dwarf_Word place = 0;
    if (dw.attribute(&scopes[i], DW_AT_call_file, &attribute) != nullptr && dw.number(&attribute, &place) == 0)
      file = dw.file(files, place, nullptr, nullptr);
    if (dw.attribute(&scopes[i], DW_AT_call_line, &attribute) != nullptr && dw.number(&attribute, &place) == 0)
      line_number = place;
  }
  std::free(scopes);
  std::free(around);
  if (frames.empty()) {
    const char* const name = dw.name_at(module, address);
    frames.push_back(at(name == nullptr ? "?" : demangled(name), file, line_number));
  }
  return frames;
}

std::string frame_by_symbols(const void* address) {
  Dl_info object{};
  if (dladdr(address, &object) == 0) return "an address in no file";
  if (object.dli_sname != nullptr) return demangled(object.dli_sname) + " in " + file_name(object.dli_fname);
  char text[32];
  std::snprintf(text, sizeof(text), "+0x%zx",
                reinterpret_cast<std::size_t>(address) - reinterpret_cast<std::size_t>(object.dli_fbase));
  return file_name(object.dli_fname) + text;
}

}  // namespace

void load_line_numbers() {
  static_cast<void>(libdw());
}

std::vector<std::string> describe_address(const void* address) {
  const LibDw* const dw = libdw();
  if (dw != nullptr) {
    static auto& modules = *new Modules(*dw);
    const auto number = reinterpret_cast<Dwarf_Addr>(address);
    if (Dwfl_Module* const module = modules.find(number); module != nullptr) {
      auto frames = frames_by_debug_information(*dw, module, number);
      if (!frames.empty()) return frames;
      const char* const name = dw->name_at(module, number);
      Dl_info object{};
      if (name != nullptr && dladdr(address, &object) != 0)
        return {demangled(name) + " in " + file_name(object.dli_fname)};
    }
  }
  return {frame_by_symbols(address)};
}

}  // namespace rdmacomm::softdev::check
