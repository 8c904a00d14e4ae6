// links.h - following symbolic links one by one, to look at each on the way.
#pragma once

#include <string>

namespace rdmacomm::programs {

/// The system follows at most this many links of a path; one with more is an endless loop. Source: path_resolution(7),
/// Linux.
inline constexpr int kMaxLinks = 40;

/// The text of the link that has this name in `folder`, or, if `name` is empty, of the link that `folder` is itself
/// (opened by O_PATH and O_NOFOLLOW). Empty: there is none, or it cannot be read.
[[nodiscard]] std::string link_text(int folder, const std::string& name);

/// Whether what is open lies in /proc, whose links lead to open files and not to names.
[[nodiscard]] bool is_in_proc(int opened);

}  // namespace rdmacomm::programs
