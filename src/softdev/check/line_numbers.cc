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
  decltype(dwfl_module_nextcu)* next_unit;
  decltype(dwarf_haspc)* has;
  decltype(dwarf_getsrc_die)* line_at;
  decltype(dwarf_linesrc)* line_file;
  decltype(dwarf_lineno)* line_number;
  decltype(dwfl_module_addrdie)* unit_at;
  decltype(dwarf_child)* child;
  decltype(dwarf_siblingof)* sibling;
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
         look_up(library, "dwfl_module_nextcu", dw.next_unit) && look_up(library, "dwarf_haspc", dw.has) &&
         look_up(library, "dwarf_getsrc_die", dw.line_at) && look_up(library, "dwarf_linesrc", dw.line_file) &&
         look_up(library, "dwarf_lineno", dw.line_number) && look_up(library, "dwfl_module_addrdie", dw.unit_at) &&
         look_up(library, "dwarf_child", dw.child) && look_up(library, "dwarf_siblingof", dw.sibling) &&
         look_up(library, "dwarf_tag", dw.tag) && look_up(library, "dwarf_diename", dw.name) &&
         look_up(library, "dwarf_attr_integrate", dw.attribute) && look_up(library, "dwarf_formudata", dw.number) &&
         look_up(library, "dwarf_formstring", dw.text) && look_up(library, "dwarf_getsrcfiles", dw.files) &&
         look_up(library, "dwarf_filesrc", dw.file) && look_up(library, "dwfl_linux_proc_find_elf", dw.find_elf) &&
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

/// The unit of an address. The index of a module (.debug_aranges) need not have it: clang writes none.
Dwarf_Die* find_unit(const LibDw& dw, Dwfl_Module* module, Dwarf_Addr address, Dwarf_Addr& bias) {
  if (Dwarf_Die* const indexed = dw.unit_at(module, address, &bias); indexed != nullptr) return indexed;
  Dwarf_Die* unit = nullptr;
  while ((unit = dw.next_unit(module, unit, &bias)) != nullptr) {
    if (dw.has(unit, address - bias) == 1) return unit;
  }
  return nullptr;
}

/// Finds the functions inside a DIE that contain an address, the innermost one first. (dwarf_getscopes of libdw 0.188 does
/// not look into namespaces, in which clang puts functions.)
bool find_functions(const LibDw& dw, Dwarf_Die* parent, Dwarf_Addr address, std::vector<Dwarf_Die>& functions) {
  Dwarf_Die die{};
  if (dw.child(parent, &die) != 0) return false;
  do {
    const int tag = dw.tag(&die);
    const bool is_function = tag == DW_TAG_subprogram || tag == DW_TAG_inlined_subroutine;
    const bool is_around = tag == DW_TAG_namespace || tag == DW_TAG_structure_type || tag == DW_TAG_class_type;
    if (!is_around && (!(is_function || tag == DW_TAG_lexical_block) || dw.has(&die, address) != 1)) continue;
    const bool is_found = find_functions(dw, &die, address, functions);
    if (is_function) functions.push_back(die);
    if (is_function || is_found) return true;
  } while (dw.sibling(&die, &die) == 0);
  return false;
}

/// One frame, and one more for each call that was inlined.
std::vector<std::string> frames_by_debug_information(const LibDw& dw, Dwfl_Module* module, Dwarf_Addr address) {
  std::vector<std::string> frames;
  Dwarf_Addr bias = 0;
  Dwarf_Die* const unit = find_unit(dw, module, address, bias);
  Dwarf_Line* const line = unit == nullptr ? nullptr : dw.line_at(unit, address - bias);
  if (line == nullptr) return frames;
  int number = 0;
  static_cast<void>(dw.line_number(line, &number));
  const char* file = dw.line_file(line, nullptr, nullptr);
  auto line_number = static_cast<std::uint64_t>(number);
  std::vector<Dwarf_Die> functions;
  find_functions(dw, unit, address - bias, functions);
  Dwarf_Files* files = nullptr;
  std::size_t file_count = 0;
  dw.files(unit, &files, &file_count);
  for (Dwarf_Die& function : functions) {
    const char* const plain = dw.name(&function);
    Dwarf_Attribute attribute{};
    const char* linkage = nullptr;
    if (dw.attribute(&function, DW_AT_linkage_name, &attribute) != nullptr) linkage = dw.text(&attribute);
    frames.push_back(at(linkage != nullptr ? demangled(linkage) : plain != nullptr ? plain : "?", file, line_number));
    if (dw.tag(&function) == DW_TAG_subprogram) break;
    Dwarf_Word place = 0;
    if (dw.attribute(&function, DW_AT_call_file, &attribute) != nullptr && dw.number(&attribute, &place) == 0)
      file = dw.file(files, place, nullptr, nullptr);
    if (dw.attribute(&function, DW_AT_call_line, &attribute) != nullptr && dw.number(&attribute, &place) == 0)
      line_number = place;
  }
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
