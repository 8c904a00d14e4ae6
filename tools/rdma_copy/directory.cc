#include "rdma_copy/directory.h"

#include <cerrno>
#include <string_view>

#include "base/system_call.h"

namespace rdmacomm::copying {

Result<Directory> Directory::of(UniqueFd opened) {
  DIR* directory = ::fdopendir(opened.get());
  if (directory == nullptr) return make_error(last_system_error(), "");
  (void)opened.release();
  return Directory(directory);
}

Result<const dirent*> Directory::next() {
  for (;;) {
    errno = 0;  // readdir(3) reports an error only by errno
    const dirent* entry = ::readdir(directory_.get());
    if (entry == nullptr && errno != 0) return make_error(last_system_error(), "");
    if (entry == nullptr) return entry;
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") return entry;
  }
}

}  // namespace rdmacomm::copying
