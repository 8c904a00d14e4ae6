#include "support/result_file.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <random>

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

/// In a directory that others may write to, a name can be a trap that another user has laid: what is written would go to a
/// place of that user's choice. Files, links and pipes of this user and of root are trusted.
Status check_not_planted(const std::string& path) {
  struct stat is = {};
  if (::lstat(path.c_str(), &is) != 0) return {};
  const bool trusted = is.st_uid == ::geteuid() || is.st_uid == 0;
  const bool can_be_a_trap = S_ISLNK(is.st_mode) || S_ISFIFO(is.st_mode) || S_ISSOCK(is.st_mode);
  if (trusted || !can_be_a_trap) return {};
  return make_error(std::make_error_code(std::errc::operation_not_permitted),
                    "cannot write " + path + ": it is a " + (S_ISLNK(is.st_mode) ? "symbolic link" : "pipe") +
                        " of another user's; remove it, or choose another file");
}

std::error_code write_all(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = retry_interrupted([&] { return ::write(file, text.data(), text.size()); });
    if (written < 0) return last_system_error();
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return {};
}

/// To a device or a pipe, which is not made here. A regular file that has taken its name meanwhile is left alone.
Status write_in_place(const std::string& path, std::string_view text) {
  const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY));
  struct stat is = {};
  if (!file || ::fstat(file.get(), &is) != 0) return cannot_write(path, last_system_error());
  if (S_ISREG(is.st_mode)) return cannot_write(path, std::make_error_code(std::errc::text_file_busy));
  const std::error_code failed = write_all(file.get(), text);
  return failed ? Status(cannot_write(path, failed)) : Status();
}

/// A name that nobody can have foreseen, so nobody can have planted a file there.
std::string unforeseen_name() {
  std::uint64_t number = 0;
  if (::getrandom(&number, sizeof(number), 0) != sizeof(number)) number = std::random_device()();
  std::array<char, 40> name{};
  std::snprintf(name.data(), name.size(), ".rdmacomm-%016llx.new", static_cast<unsigned long long>(number));
  return name.data();
}

/// A new file, and nothing that is there already, nor what a link leads to.
/// file  gets its descriptor. Returns  its name in `directory`
Result<std::string> create_beside(int directory, UniqueFd& file) {
  constexpr int kTries = 10;
  for (int i = 0; i < kTries; ++i) {
    std::string name = unforeseen_name();
    file = UniqueFd(::openat(directory, name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666));
    if (file) return name;
    if (last_system_error() != std::errc::file_exists) break;
  }
  return make_error(last_system_error(), "no new file");
}

}  // namespace

Status check_replaceable(const std::string& path) {
  if (Status trusted = check_not_planted(path); !trusted.ok()) return trusted;
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
  if (Status trusted = check_not_planted(path); !trusted.ok()) return trusted;
  const auto target = target_of(path);
  if (!target) return target.error();
  struct stat is = {};
  const bool exists = ::stat(target->c_str(), &is) == 0;
  if (exists && !S_ISREG(is.st_mode)) return write_in_place(path, text);
  const UniqueFd directory(::open(target->parent_path().c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!directory) return cannot_write(path, last_system_error());
  UniqueFd file;
  const auto beside = create_beside(directory.get(), file);
  if (!beside) return cannot_write(path, beside.code());
  std::error_code failed = write_all(file.get(), text);
  // The old file's permissions are kept, if it was this user's: those of another user's say what that one wants.
  const bool keep_mode = exists && is.st_uid == ::geteuid();
  if (!failed && keep_mode && ::fchmod(file.get(), is.st_mode & 07777) != 0) failed = last_system_error();
  const std::string name = target->filename();
  if (!failed && ::renameat(directory.get(), beside->c_str(), directory.get(), name.c_str()) != 0) {
    failed = last_system_error();
  }
  if (!failed) return {};
  ::unlinkat(directory.get(), beside->c_str(), 0);
  return cannot_write(path, failed);
}

}  // namespace rdmacomm::programs
