#include "rdma_copy/total_size.h"

#include <filesystem>
#include <system_error>

namespace rdmacomm::copying {
namespace {

namespace fs = std::filesystem;

std::uint64_t size_of(const fs::directory_entry& entry) {
  std::error_code failed;
  if (!entry.is_regular_file(failed)) return 0;
  const std::uint64_t size = entry.file_size(failed);
  return failed ? 0 : size;
}

}  // namespace

std::optional<std::uint64_t> total_size(const std::vector<std::string>& paths, bool recursive,
                                        const std::atomic<bool>& over) {
  std::uint64_t total = 0;
  for (const std::string& path : paths) {
    std::error_code failed;
    total += size_of(fs::directory_entry(path, failed));
    if (!recursive) continue;
    fs::recursive_directory_iterator at(path, fs::directory_options::skip_permission_denied, failed);
    for (; !failed && at != fs::recursive_directory_iterator(); at.increment(failed)) {
      if (over) return {};
      if (!at->is_symlink(failed)) total += size_of(*at);
    }
  }
  return total;
}

}  // namespace rdmacomm::copying
