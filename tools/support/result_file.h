// result_file.h - a file that is replaced as a whole, when all is well, or stays as it was.
#pragma once

#include <string>
#include <string_view>

#include "rdmacomm/result.h"

namespace rdmacomm::programs {

/// Whether replace_file() could write there, as far as that can be known without touching anything.
/// Returns  the system's error; the context names `path`
[[nodiscard]] Status check_replaceable(const std::string& path);
/// Makes `text` the content of the file: writes a new one beside it, of a name that nobody can foresee, and renames
/// that. Follows symbolic links of this user's and of root's. What is no regular file (a device, a pipe) is written to,
/// and so is what /dev/stdout, /dev/fd/N and /proc/PID/fd/N lead to, even if it is a regular file: through the
/// descriptor, if it is this process's own and was open when the program began, and else behind the file's content.
/// Returns  std::errc::operation_not_permitted: the name is a link or a pipe of another user's; or the system's error.
///          The file is then as it was before
[[nodiscard]] Status replace_file(const std::string& path, std::string_view text);

}  // namespace rdmacomm::programs
