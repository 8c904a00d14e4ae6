// result_file.h - replaces a file as a whole, or leaves it unchanged on errors.
#pragma once

#include <string>
#include <string_view>

#include "rdmacomm/result.h"

namespace rdmacomm::programs {

/// Whether replace_file() could write to `path`, as far as this can be checked without changing anything.
/// Returns  the system's error; the context names `path`
[[nodiscard]] Status check_replaceable(const std::string& path);
/// Makes `text` the content of the file: writes a new file beside it, with an unpredictable name, and renames it.
/// Follows symbolic links that belong to this user or root. A file that is not regular (a device, a pipe) is written to
/// directly. So is the target of /dev/stdout, /dev/fd/N and /proc/PID/fd/N, even if it is a regular file: through the
/// descriptor, if this process was started with it, and otherwise by appending to the file.
/// Returns  std::errc::operation_not_permitted: the name is a link or a pipe that belongs to another user; or the
///          system's error. The file is then unchanged
[[nodiscard]] Status replace_file(const std::string& path, std::string_view text);

}  // namespace rdmacomm::programs
