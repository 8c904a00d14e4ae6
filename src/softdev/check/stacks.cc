#include "softdev/check/stacks.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <link.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <span>

#include "softdev/check/line_numbers.h"
#include "softdev/check/locked.h"

namespace rdmacomm::softdev::check {
namespace {

constexpr int kMostFrames = 24;
/// Frames of this library that may lie above the program's.
constexpr int kMostOwnFrames = 8;

using Frames = std::vector<void*>;

struct Stacks {
  std::map<Frames, StackId> numbers;
  std::vector<const Frames*> all;  ///< the keys of `numbers`, which do not move
};

Stacks& stacks() {
  static auto& one = *new Stacks;  // never destroyed: reports are printed when the process ends
  return one;
}

Frames frames_of(StackId stack) {
  if (stack == 0 || stack > stacks().all.size()) return {};
  return *stacks().all[stack - 1];
}

std::string file_name(const char* path) {
  const std::string whole = path == nullptr ? "" : path;
  return whole.substr(whole.rfind('/') + 1);  // npos + 1 is 0
}

/// The addresses of the code of this library.
struct OwnCode {
  OwnCode() {
    dl_iterate_phdr(
        [](dl_phdr_info* object, std::size_t, void* own) {
          auto& code = *static_cast<OwnCode*>(own);
          const auto here = reinterpret_cast<std::uintptr_t>(&capture_stack);
          for (int i = 0; i < object->dlpi_phnum; ++i) {
            const auto& part = object->dlpi_phdr[i];
            const std::uintptr_t first = object->dlpi_addr + part.p_vaddr;
            if (part.p_type != PT_LOAD || here < first || here >= first + part.p_memsz) continue;
            code.begin = first;
            code.end = first + part.p_memsz;
          }
          return code.end != 0 ? 1 : 0;
        },
        this);
  }
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
};

bool is_own(const void* address) {
  static const OwnCode code;
  const auto number = reinterpret_cast<std::uintptr_t>(address);
  return code.begin <= number && number < code.end;
}

/// The return addresses on the stack of this thread.
struct Captured {
  Captured() : count(backtrace(found.data(), static_cast<int>(found.size()))) {}
  std::array<void*, kMostFrames + kMostOwnFrames> found{};
  int count;
};

StackId number_of(const Captured& captured) {
  std::span<void* const> frames(captured.found.data(), static_cast<std::size_t>(std::max(captured.count, 0)));
  while (!frames.empty() && is_own(frames.front())) frames = frames.subspan(1);
  if (frames.size() > kMostFrames) frames = frames.first(kMostFrames);
  Stacks& known = stacks();
  const auto [place, is_new] =
      known.numbers.try_emplace(Frames(frames.begin(), frames.end()), static_cast<StackId>(known.all.size() + 1));
  if (is_new) known.all.push_back(&place->first);
  return place->second;
}

}  // namespace

StackId capture_stack() {
  const Captured captured;
  const Locked locked;
  return number_of(captured);
}

StackId capture_stack_locked() {
  return number_of(Captured());
}

namespace {

bool is_of_libc_start(const std::string& line) {
  return line.starts_with("__libc_start_") || line.starts_with("start_thread ") || line.starts_with("_start ");
}

}  // namespace

std::vector<std::string> describe_stack(StackId stack) {
  std::vector<std::string> lines;
  for (void* const frame : frames_of(stack)) {
    // A return address is behind its call, maybe in another line.
    auto* const call = static_cast<std::byte*>(frame) - 1;
    for (std::string& line : describe_address(call)) {
      if (!lines.empty() || line.find(" at verbs.h:") == std::string::npos) lines.push_back(std::move(line));
    }
    if (!lines.empty() && is_of_libc_start(lines.back())) {
      lines.pop_back();  // it has called main()
      break;
    }
    if (!lines.empty() && (lines.back().starts_with("main ") || lines.back() == "main")) break;
  }
  return lines;
}

std::vector<std::string> objects_of(StackId stack) {
  std::vector<std::string> names;
  for (void* const frame : frames_of(stack)) {
    Dl_info object{};
    if (dladdr(frame, &object) == 0) continue;
    std::string name = file_name(object.dli_fname);
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(std::move(name));
  }
  return names;
}

void prepare_names() {
  std::array<void*, 1> frame{};
  backtrace(frame.data(), 1);  // the first call loads libgcc
  load_line_numbers();
}

}  // namespace rdmacomm::softdev::check
