#include "support/result_file.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <random>

#include "base/system_call.h"
#include "base/unique_fd.h"
#include "support/links.h"
#include "support/standard_output.h"

namespace rdmacomm::programs {
namespace {

namespace fs = std::filesystem;

Error cannot_write(const std::string& path, std::error_code why) {
  return make_error(why, "cannot write " + path);
}

/// A name in an open directory. The directory is open, so nobody can move the name elsewhere between two checks.
struct Place {
  UniqueFd directory;
  std::string name;
  bool exists = false;
  bool by_system = false;  ///< a link in /proc to an open file, or to an object without a path
  int descriptor = -1;     ///< by_system: its number, if it is this process's own
  struct stat is = {};     ///< of the named file; for a link by_system of its target

  /// Whether a new file may replace the name.
  [[nodiscard]] bool is_replaced() const { return !by_system && (!exists || S_ISREG(is.st_mode)); }
};

/// Other users may be able to write to the directory. One of them may have created the name as a trap, so that the
/// output goes to a place of their choice. Files, links and pipes are trusted if they belong to the user of this
/// process or to root.
Status check_not_planted(const std::string& path, const struct stat& is) {
  const bool trusted = is.st_uid == ::geteuid() || is.st_uid == 0;
  const bool can_be_a_trap = S_ISLNK(is.st_mode) || S_ISFIFO(is.st_mode) || S_ISSOCK(is.st_mode);
  if (trusted || !can_be_a_trap) return {};
  return make_error(std::make_error_code(std::errc::operation_not_permitted),
                    "cannot write " + path + ": it is a " + (S_ISLNK(is.st_mode) ? "symbolic link" : "pipe") +
                        " that belongs to another user; remove it, or choose another file");
}

/// Moves on to the directory and the name of `to`, which is relative to `place`.
std::error_code enter(Place& place, const fs::path& to) {
  const fs::path parent = to.has_parent_path() ? to.parent_path() : fs::path(".");
  const int from = place.directory ? place.directory.get() : AT_FDCWD;
  UniqueFd directory(::openat(from, parent.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!directory) return last_system_error();
  place.directory = std::move(directory);
  place.name = to.filename().empty() ? "." : to.filename().string();
  return {};
}

/// The number of a descriptor, which is the name of a link in /proc. -1: the name is not a number.
int number_in(std::string_view name) {
  int number = -1;
  const auto read = std::from_chars(name.data(), name.data() + name.size(), number);
  return read.ec == std::errc() && read.ptr == name.data() + name.size() ? number : -1;
}

/// Whether the directory lists the descriptors of this process or thread.
bool is_of_own_descriptors(const UniqueFd& directory) {
  struct stat is = {};
  if (::fstat(directory.get(), &is) != 0) return false;
  return std::ranges::any_of(std::array{"/proc/self/fd", "/proc/thread-self/fd"}, [&is](const char* path) {
    struct stat own = {};
    return ::stat(path, &own) == 0 && own.st_dev == is.st_dev && own.st_ino == is.st_ino;
  });
}

/// Whether this process was started with the descriptor, and can write to it. Descriptors that the program itself has
/// opened are closed by exec; the user cannot mean them.
bool came_open(int descriptor) {
  const int flags = ::fcntl(descriptor, F_GETFD);
  const int access = ::fcntl(descriptor, F_GETFL);
  return flags != -1 && (flags & FD_CLOEXEC) == 0 && access != -1 && (access & O_PATH) == 0 &&
         (access & O_ACCMODE) != O_RDONLY;
}

/// Whether the link is one in /proc to an open file, or to an object without a path. If so, sets `place` to the link's
/// target. Such a file must not be replaced: `>> log` must add to the log.
bool leads_to_open_file(Place& place, const UniqueFd& link) {
  struct stat target = {};
  if (!is_in_proc(link.get()) || ::fstatat(place.directory.get(), place.name.c_str(), &target, 0) != 0) return false;
  const int descriptor = number_in(place.name);
  if (descriptor < 0 && S_ISREG(target.st_mode)) return false;
  place.by_system = true;
  place.is = target;
  if (is_of_own_descriptors(place.directory)) place.descriptor = descriptor;
  return true;
}

/// Follows the links at the name. Each link is checked and read while it is open. So the link itself is never replaced,
/// and if another user puts a link there meanwhile, it is not followed.
Result<Place> place_of(const std::string& path) {
  Place place;
  if (const std::error_code failed = enter(place, path)) return cannot_write(path, failed);
  for (int links = 0; links <= kMaxLinks; ++links) {
    const UniqueFd found(::openat(place.directory.get(), place.name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
    if (!found && last_system_error() == std::errc::no_such_file_or_directory) {
      if (is_in_proc(place.directory.get()))
        return cannot_write(path, std::make_error_code(std::errc::bad_file_descriptor));
      return place;
    }
    if (!found || ::fstat(found.get(), &place.is) != 0) return cannot_write(path, last_system_error());
    if (Status trusted = check_not_planted(path, place.is); !trusted.ok()) return trusted.error();
    place.exists = true;
    const bool is_last = !S_ISLNK(place.is.st_mode) || leads_to_open_file(place, found);
    if (place.descriptor >= 0 && !came_open(place.descriptor)) {
      return cannot_write(path, std::make_error_code(std::errc::bad_file_descriptor));
    }
    if (is_last) return place;
    place.exists = false;
    const std::string next = link_text(found.get(), "");
    if (next.empty()) return cannot_write(path, std::make_error_code(std::errc::filename_too_long));
    if (const std::error_code failed = enter(place, next)) return cannot_write(path, failed);
  }
  return cannot_write(path, std::make_error_code(std::errc::too_many_symbolic_link_levels));
}

std::error_code write_all(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = retry_interrupted([&] { return ::write(file, text.data(), text.size()); });
    const std::error_code failed = written < 0 ? last_system_error() : std::error_code();
    if (failed == std::errc::resource_unavailable_try_again) {  // an inherited descriptor may be non-blocking
      pollfd room{.fd = file, .events = POLLOUT, .revents = 0};
      (void)retry_interrupted([&] { return ::poll(&room, 1, -1); });
      continue;
    }
    if (failed) return failed;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return {};
}

/// Appends after the output that the program has already written there.
Status write_to_descriptor(const std::string& path, int descriptor, std::string_view text) {
  if (Status flushed = flush_standard_output(); !flushed.ok()) return flushed;
  const std::error_code failed = write_all(descriptor, text);
  return failed ? Status(cannot_write(path, failed)) : Status();
}

/// Writes to an existing device, pipe or open file of another process. If a regular file, or a trap of another user,
/// has replaced it meanwhile, does not write.
Status write_in_place(const std::string& path, const Place& place, std::string_view text) {
  if (place.descriptor >= 0) return write_to_descriptor(path, place.descriptor, text);
  const int how = place.by_system ? O_APPEND : O_NOFOLLOW;
  const UniqueFd file(::openat(place.directory.get(), place.name.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY | how));
  struct stat is = {};
  if (!file || ::fstat(file.get(), &is) != 0) return cannot_write(path, last_system_error());
  if (!place.by_system) {
    if (S_ISREG(is.st_mode)) return cannot_write(path, std::make_error_code(std::errc::text_file_busy));
    if (Status trusted = check_not_planted(path, is); !trusted.ok()) return trusted;
  }
  const std::error_code failed = write_all(file.get(), text);
  return failed ? Status(cannot_write(path, failed)) : Status();
}

/// A name that nobody can predict, so that nobody can have created a file there.
std::string unforeseen_name() {
  std::uint64_t number = 0;
  if (::getrandom(&number, sizeof(number), 0) != sizeof(number)) number = std::random_device()();
  std::array<char, 40> name{};
  std::snprintf(name.data(), name.size(), ".rdmacomm-%016llx.new", static_cast<unsigned long long>(number));
  return name.data();
}

/// Creates a new file, and never opens an existing file or a link's target.
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
    if (place->descriptor >= 0) return {};
    if (::faccessat(directory, place->name.c_str(), W_OK, 0) != 0) return cannot_write(path, last_system_error());
    if (!place->is_replaced()) return {};
  }
  return ::faccessat(directory, ".", W_OK | X_OK, 0) == 0 ? Status() : Status(cannot_write(path, last_system_error()));
}

Status replace_file(const std::string& path, std::string_view text) {
  const auto place = place_of(path);
  if (!place) return place.error();
  if (!place->is_replaced()) return write_in_place(path, *place, text);
  const int directory = place->directory.get();
  UniqueFd file;
  const auto beside = create_beside(directory, file);
  if (!beside) return cannot_write(path, beside.code());
  std::error_code failed = write_all(file.get(), text);
  // The old file's permissions are kept only if this user owned it, because another owner's permissions express that
  // owner's intent.
  const bool keep_mode = place->exists && place->is.st_uid == ::geteuid();
  if (!failed && keep_mode && ::fchmod(file.get(), place->is.st_mode & 07777) != 0) failed = last_system_error();
  if (!failed && ::renameat(directory, beside->c_str(), directory, place->name.c_str()) != 0)
    failed = last_system_error();
  if (!failed) return {};
  ::unlinkat(directory, beside->c_str(), 0);
  return cannot_write(path, failed);
}

}  // namespace rdmacomm::programs
