#include "softdev/preload/files/view_path.h"

#include <cstring>

namespace rdmacomm::softdev::preload {
namespace {

/// Takes the next part of a path that is neither empty nor ".". Empty at the end of the path.
std::string_view next_part(const char*& path) noexcept {
  for (;;) {
    while (*path == '/') ++path;
    const char* const start = path;
    while (*path != '\0' && *path != '/') ++path;
    const std::string_view part(start, static_cast<std::size_t>(path - start));
    if (part != ".") return part;
  }
}

bool is_class(std::string_view part) noexcept {
  return part == "infiniband" || part == "infiniband_verbs" || part == "infiniband_mad";
}

}  // namespace

bool relative_may_be_in_view(const char* path) noexcept {
  return std::strstr(path, "infiniband") != nullptr || std::strstr(path, "rdma_cm") != nullptr;
}

bool absolute_may_be_in_view(const char* path) noexcept {
  const char* rest = path;
  std::string_view part = next_part(rest);
  const bool below_sys = part == "sys";
  if (below_sys || part == "dev") {
    part = next_part(rest);
    if (!below_sys && part == "infiniband") return true;
    if (below_sys && part == "class") {
      part = next_part(rest);
      if (is_class(part)) return true;
      if (part == "misc") {
        part = next_part(rest);
        if (part == "rdma_cm") return true;
      }
    }
  }
  return part == ".." && relative_may_be_in_view(path);
}

NormalPath::NormalPath(std::string_view folder, std::string_view path) noexcept {
  if (folder.size() + path.size() + 2 > sizeof(text_)) return;
  if (!path.starts_with('/')) {
    if (!folder.starts_with('/')) return;
    add_parts(folder);
  }
  add_parts(path);
  if (length_ == 0) text_[length_++] = '/';
  text_[length_] = '\0';
}

void NormalPath::add_parts(std::string_view path) noexcept {
  while (!path.empty()) {
    const std::string_view part = path.substr(0, path.find('/'));
    path.remove_prefix(part.size());
    if (!path.empty()) path.remove_prefix(1);
    if (part.empty() || part == ".") continue;
    if (part == "..") {
      const std::size_t slash = text().rfind('/');
      length_ = slash == std::string_view::npos ? 0 : slash;
      continue;
    }
    text_[length_++] = '/';
    std::memcpy(text_ + length_, part.data(), part.size());
    length_ += part.size();
  }
}

std::optional<std::string_view> entry_of(std::string_view normal_path) noexcept {
  const auto is_at_or_below = [normal_path](std::string_view folder) {
    return normal_path.starts_with(folder) &&
           (normal_path.size() == folder.size() || normal_path[folder.size()] == '/');
  };
  if (is_at_or_below(kConnectionManager)) return kConnectionManager;
  for (const std::string_view folder : {kDeviceNodes, kDevices, kVerbsDevices, kManagementDevices}) {
    if (!is_at_or_below(folder)) continue;
    const std::size_t end = normal_path.find('/', folder.size() + 1);
    return normal_path.substr(0, end);
  }
  return std::nullopt;
}

}  // namespace rdmacomm::softdev::preload
