#include "support/result_file.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <array>
#include <climits>
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

/// A name in an open directory: nobody can make it lead elsewhere between two looks at it.
struct Place {
  UniqueFd directory;
  std::string name;
  bool exists = false;
  bool by_system = false;  ///< a link of /proc to something that has no path, as /proc/self/fd/1 is to a pipe
  struct stat is = {};     ///< what has the name; of a link by_system what that leads to
};

/// In a directory that others may write to, a name can be a trap that another user has laid: what is written would go to a
/// place of that user's choice. Files, links and pipes of this user and of root are trusted.
Status check_not_planted(const std::string& path, const struct stat& is) {
  const bool trusted = is.st_uid == ::geteuid() || is.st_uid == 0;
  const bool can_be_a_trap = S_ISLNK(is.st_mode) || S_ISFIFO(is.st_mode) || S_ISSOCK(is.st_mode);
  if (trusted || !can_be_a_trap) return {};
  return make_error(std::make_error_code(std::errc::operation_not_permitted),
                    "cannot write " + path + ": it is a " + (S_ISLNK(is.st_mode) ? "symbolic link" : "pipe") +
                        " of another user's; remove it, or choose another file");
}

/// Goes on to the directory and the name of `to`, which is relative to `place`.
std::error_code enter(Place& place, const fs::path& to) {
  const fs::path parent = to.has_parent_path() ? to.parent_path() : fs::path(".");
  const int from = place.directory ? place.directory.get() : AT_FDCWD;
  UniqueFd directory(::openat(from, parent.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!directory) return last_system_error();
  place.directory = std::move(directory);
  place.name = to.filename().empty() ? "." : to.filename().string();
  return {};
}

/// Where the link that `link` is open at leads to. Empty: it is none any more, or too long.
std::string text_of(const UniqueFd& link) {
  std::array<char, PATH_MAX> text{};
  const ssize_t length = ::readlinkat(link.get(), "", text.data(), text.size());
  return length > 0 && static_cast<std::size_t>(length) < text.size()
             ? std::string(text.data(), static_cast<std::size_t>(length))
             : std::string();
}

/// Whether the link is one of /proc, whose text need not be a path; then `place` gets what it leads to.
bool leads_to_no_path(Place& place, const UniqueFd& link) {
  struct statfs system = {};
  struct stat target = {};
  if (::fstatfs(link.get(), &system) != 0 || system.f_type != PROC_SUPER_MAGIC) return false;
  if (::fstatat(place.directory.get(), place.name.c_str(), &target, 0) != 0 || S_ISREG(target.st_mode)) return false;
  place.by_system = true;
  place.is = target;
  return true;
}

/// Follows the links that have the name, each one looked at, and read, while it is open: so that not the link is replaced, and no
/// link of another user's is followed that takes its name meanwhile.
Result<Place> place_of(const std::string& path) {
  constexpr int kMostLinks = 40;  // as the kernel has it
  Place place;
  if (const std::error_code failed = enter(place, path)) return cannot_write(path, failed);
  for (int links = 0; links <= kMostLinks; ++links) {
    const UniqueFd found(::openat(place.directory.get(), place.name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
    if (!found && last_system_error() == std::errc::no_such_file_or_directory) return place;
    if (!found || ::fstat(found.get(), &place.is) != 0) return cannot_write(path, last_system_error());
    if (Status trusted = check_not_planted(path, place.is); !trusted.ok()) return trusted.error();
    place.exists = true;
    if (!S_ISLNK(place.is.st_mode) || leads_to_no_path(place, found)) return place;
    place.exists = false;
    const std::string next = text_of(found);
    if (next.empty()) return cannot_write(path, std::make_error_code(std::errc::filename_too_long));
    if (const std::error_code failed = enter(place, next)) return cannot_write(path, failed);
  }
  return cannot_write(path, std::make_error_code(std::errc::too_many_symbolic_link_levels));
}

std::error_code write_all(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = retry_interrupted([&] { return ::write(file, text.data(), text.size()); });
    if (written < 0) return last_system_error();
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return {};
}

/// To a device or a pipe, which is not made here. What has taken its name meanwhile, and is a file or planted, is left alone.
Status write_in_place(const std::string& path, const Place& place, std::string_view text) {
  const int follow = place.by_system ? 0 : O_NOFOLLOW;
  const UniqueFd file(::openat(place.directory.get(), place.name.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY | follow));
  struct stat is = {};
  if (!file || ::fstat(file.get(), &is) != 0) return cannot_write(path, last_system_error());
  if (S_ISREG(is.st_mode)) return cannot_write(path, std::make_error_code(std::errc::text_file_busy));
  if (!place.by_system) {
    if (Status trusted = check_not_planted(path, is); !trusted.ok()) return trusted;
  }
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
  const auto place = place_of(path);
  if (!place) return place.error();
  const int directory = place->directory.get();
  if (place->exists) {
    if (S_ISDIR(place->is.st_mode)) return cannot_write(path, std::make_error_code(std::errc::is_a_directory));
    if (::faccessat(directory, place->name.c_str(), W_OK, 0) != 0) return cannot_write(path, last_system_error());
    if (!S_ISREG(place->is.st_mode)) return {};
  }
  return ::faccessat(directory, ".", W_OK | X_OK, 0) == 0 ? Status() : Status(cannot_write(path, last_system_error()));
}

Status replace_file(const std::string& path, std::string_view text) {
  const auto place = place_of(path);
  if (!place) return place.error();
  if (place->exists && !S_ISREG(place->is.st_mode)) return write_in_place(path, *place, text);
  const int directory = place->directory.get();
  UniqueFd file;
  const auto beside = create_beside(directory, file);
  if (!beside) return cannot_write(path, beside.code());
  std::error_code failed = write_all(file.get(), text);
  // The old file's permissions are kept, if it was this user's: those of another user's say what that one wants.
  const bool keep_mode = place->exists && place->is.st_uid == ::geteuid();
  if (!failed && keep_mode && ::fchmod(file.get(), place->is.st_mode & 07777) != 0) failed = last_system_error();
  if (!failed && ::renameat(directory, beside->c_str(), directory, place->name.c_str()) != 0)
    failed = last_system_error();
  if (!failed) return {};
  ::unlinkat(directory, beside->c_str(), 0);
  return cannot_write(path, failed);
}

}  // namespace rdmacomm::programs
