// view_path.h - which paths belong to the view of the device files (device_view.h). Works on the text of a path only.
#pragma once

#include <climits>
#include <cstddef>
#include <optional>
#include <string_view>

namespace rdmacomm::softdev::preload {

/// The folders that the view shows. /sys/class/misc has many other entries; only `rdma_cm` in it is in the view.
inline constexpr std::string_view kDeviceNodes = "/dev/infiniband";
inline constexpr std::string_view kDevices = "/sys/class/infiniband";
inline constexpr std::string_view kVerbsDevices = "/sys/class/infiniband_verbs";
inline constexpr std::string_view kManagementDevices = "/sys/class/infiniband_mad";
inline constexpr std::string_view kConnectionManager = "/sys/class/misc/rdma_cm";

/// True if an absolute path may lie in the view. Only a path with ".." in its first parts may be outside nevertheless.
[[nodiscard]] bool absolute_may_be_in_view(const char* path) noexcept;
/// True if a relative path names an entry that may lie in the view, which depends on its folder. Not for counters.
[[nodiscard]] bool relative_may_be_in_view(const char* path) noexcept;

/// True if a path may lie in the view. Programs open files in signal handlers, so this function and those above call
/// no function that is not safe there.
/// path  any text, or nullptr
/// Cost: the comparison of a few bytes for most absolute paths, a search in the text for relative ones. No system call.
[[nodiscard]] inline bool may_be_in_view(const char* path) noexcept {
  if (path == nullptr) return false;
  if (path[0] != '/') return relative_may_be_in_view(path);
  const char second = path[1];
  return (second == 'd' || second == 's' || second == '/' || second == '.') && absolute_may_be_in_view(path);
}

/// A path without empty parts, "." and "..". The parts before ".." are removed without a look at symbolic links.
class NormalPath {
 public:
  /// folder  absolute path of the folder that a relative `path` starts from
  /// A path that is longer than PATH_MAX, or a relative path without a folder, gives an empty text.
  NormalPath(std::string_view folder, std::string_view path) noexcept;
  [[nodiscard]] std::string_view text() const noexcept { return {text_, length_}; }
  [[nodiscard]] const char* c_str() const noexcept { return text_; }

 private:
  void add_parts(std::string_view path) noexcept;

  char text_[PATH_MAX] = {};
  std::size_t length_ = 0;
};

/// The part of a normal path that decides whether the view has it: a folder of the view, or an entry in this folder.
/// Example: "/sys/class/infiniband/soft0" of "/sys/class/infiniband/soft0/ports/1". No value: outside of the view.
[[nodiscard]] std::optional<std::string_view> entry_of(std::string_view normal_path) noexcept;

}  // namespace rdmacomm::softdev::preload
