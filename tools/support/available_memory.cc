#include "support/available_memory.h"

#include <algorithm>
#include <fstream>
#include <sstream>

#include "support/table.h"

namespace rdmacomm::programs {
namespace {

/// The number after `name` in a file of lines "name value ...".
std::optional<std::uint64_t> value_of(const std::string& path, const std::string& name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string word;
    std::uint64_t value = 0;
    if (words >> word >> value && word == name) return value;
  }
  return std::nullopt;
}

/// The number in a file that contains nothing else; nullopt also for "max".
std::optional<std::uint64_t> number_in(const std::string& path) {
  std::ifstream file(path);
  std::uint64_t value = 0;
  return file >> value ? std::optional(value) : std::nullopt;
}

/// The names of the memory files in one version of control groups.
struct GroupFiles {
  const char* limit;
  const char* used;
  const char* droppable;  ///< in memory.stat: page cache that was not used recently
};
constexpr GroupFiles kVersion1 = {"/memory.limit_in_bytes", "/memory.usage_in_bytes", "total_inactive_file"};
constexpr GroupFiles kVersion2 = {"/memory.max", "/memory.current", "inactive_file"};

std::optional<std::uint64_t> left_in(const std::string& directory, const GroupFiles& files) {
  const auto limit = number_in(directory + files.limit);
  const auto used = number_in(directory + files.used);
  if (!limit || !used) return std::nullopt;
  const std::uint64_t droppable = value_of(directory + "/memory.stat", files.droppable).value_or(0);
  const std::uint64_t kept = *used - std::min(*used, droppable);
  return *limit - std::min(*limit, kept);
}

/// The least memory that the group at `path` and its parent groups leave. In a container, `path` can be a path of the
/// host that is not mounted here. Groups that do not exist are ignored, and the mount itself is the container's own
/// group.
std::optional<std::uint64_t> left_along(const std::string& mount, std::string path, const GroupFiles& files) {
  std::optional<std::uint64_t> least;
  for (;;) {
    while (path.ends_with('/')) path.pop_back();
    const auto left = left_in(mount + path, files);
    if (left) least = std::min(least.value_or(*left), *left);
    if (path.empty()) return least;
    path.resize(path.find_last_of('/') == std::string::npos ? 0 : path.find_last_of('/'));
  }
}

bool names_memory(const std::string& controllers) {
  return (',' + controllers + ',').find(",memory,") != std::string::npos;
}

std::optional<std::uint64_t> left_in_control_groups(const std::string& root) {
  std::optional<std::uint64_t> least;
  const auto note = [&least](const std::optional<std::uint64_t>& left) {
    if (left) least = std::min(least.value_or(*left), *left);
  };
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {  // "4:memory:/user/7" or "0::/user/7"
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (names_memory(controllers)) note(left_along(root + "/sys/fs/cgroup/memory", path, kVersion1));
    if (!controllers.empty()) continue;
    note(left_along(root + "/sys/fs/cgroup", path, kVersion2));
    note(left_along(root + "/sys/fs/cgroup/unified", path, kVersion2));
  }
  return least;
}

}  // namespace

std::optional<std::uint64_t> available_memory(const std::string& root) {
  std::optional<std::uint64_t> available = value_of(root + "/proc/meminfo", "MemAvailable:");
  if (available) *available *= 1024;
  const auto in_groups = left_in_control_groups(root);
  if (!in_groups) return available;
  return std::min(available.value_or(*in_groups), *in_groups);
}

std::string gib_text(std::uint64_t bytes) {
  return number_text(static_cast<double>(bytes) / (1 << 30)) + " GiB";
}

}  // namespace rdmacomm::programs
