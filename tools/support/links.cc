#include "support/links.h"

#include <linux/magic.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <array>
#include <climits>
#include <cstddef>

namespace rdmacomm::programs {

std::string link_text(int folder, const std::string& name) {
  std::array<char, PATH_MAX> text{};
  const ssize_t length = ::readlinkat(folder, name.c_str(), text.data(), text.size());
  const bool whole = length > 0 && static_cast<std::size_t>(length) < text.size();
  return whole ? std::string(text.data(), static_cast<std::size_t>(length)) : std::string();
}

bool is_in_proc(int opened) {
  struct statfs system = {};
  return ::fstatfs(opened, &system) == 0 && system.f_type == PROC_SUPER_MAGIC;
}

}  // namespace rdmacomm::programs
