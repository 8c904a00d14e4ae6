// links.h - reads symbolic links one by one, so that a program can check each of them.
#pragma once

#include <string>

namespace rdmacomm::programs {

/// The system follows at most this number of links in a path. A path with more is treated as an endless loop. Source:
/// path_resolution(7), Linux.
inline constexpr int kMaxLinks = 40;

/// The target of the link with this name in `folder`, or, if `name` is empty, of the link that `folder` itself is
/// (opened with O_PATH and O_NOFOLLOW). Empty: no such link, or it cannot be read.
[[nodiscard]] std::string link_text(int folder, const std::string& name);

/// Whether the open file lies in /proc, where links lead to open files instead of names.
[[nodiscard]] bool is_in_proc(int opened);

}  // namespace rdmacomm::programs
