#include "support/result_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>

#include "rdmacomm/base/system_call.h"
#include "rdmacomm/base/unique_fd.h"

namespace rdmacomm::programs {
namespace {

namespace fs = std::filesystem;

Error cannot_write(const std::string& path, std::error_code why) {
  return make_error(why, "cannot write " + path);
}

/// `path` without symbolic links, so that not the link is replaced; as it is where it is no regular file: /dev/stdout
/// leads to a pipe that has no path.
Result<fs::path> target_of(const std::string& path) {
  std::error_code failed;
  const fs::file_status found = fs::status(path, failed);
  if (fs::exists(found) && !fs::is_regular_file(found)) return fs::path(path);
  failed.clear();
  fs::path target = fs::weakly_canonical(fs::absolute(path), failed);
  if (failed) return cannot_write(path, failed);
  return target;
}

Status write_all(const fs::path& path, std::string_view text, const std::string& named) {
  const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (file.get() < 0) return cannot_write(named, last_system_error());
  while (!text.empty()) {
    const ssize_t written = retry_interrupted([&] { return ::write(file.get(), text.data(), text.size()); });
    if (written < 0) return cannot_write(named, last_system_error());
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return {};
}

}  // namespace

Status check_replaceable(const std::string& path) {
  const auto target = target_of(path);
  if (!target) return target.error();
  struct stat is = {};
  if (::stat(target->c_str(), &is) == 0) {
    if (S_ISDIR(is.st_mode)) return cannot_write(path, std::make_error_code(std::errc::is_a_directory));
    if (::access(target->c_str(), W_OK) != 0) return cannot_write(path, last_system_error());
    if (!S_ISREG(is.st_mode)) return {};
  }
  if (::access(target->parent_path().c_str(), W_OK | X_OK) != 0) return cannot_write(path, last_system_error());
  return {};
}

Status replace_file(const std::string& path, std::string_view text) {
  const auto target = target_of(path);
  if (!target) return target.error();
  struct stat is = {};
  const bool exists = ::stat(target->c_str(), &is) == 0;
  if (exists && !S_ISREG(is.st_mode)) return write_all(*target, text, path);
  fs::path beside = *target;
  beside += ".new." + std::to_string(::getpid());
  Status outcome = write_all(beside, text, path);
  if (outcome.ok() && exists && ::chmod(beside.c_str(), is.st_mode & 07777) != 0) {
    outcome = cannot_write(path, last_system_error());
  }
  if (outcome.ok() && ::rename(beside.c_str(), target->c_str()) != 0) outcome = cannot_write(path, last_system_error());
  if (!outcome.ok()) ::unlink(beside.c_str());
  return outcome;
}

}  // namespace rdmacomm::programs
