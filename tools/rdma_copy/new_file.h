// new_file.h - a file that gets its name when it is whole.
#pragma once

#include <sys/stat.h>

#include <ctime>
#include <string>
#include <string_view>

#include "base/unique_fd.h"
#include "rdmacomm/result.h"

namespace rdmacomm::copying {

struct LeftFile;

/// A file in the making: in the directory where it will be, as ".NAME.rdma_copy-partial" (or, of long names, a short
/// one that is made from it; or, if another user has that one or may hold its lock, one that nobody can foresee),
/// locked, so that nobody else writes it. It gets its name by publish(); what goes without stays as it is, for
/// reopen(), unless discard() is called; but of create_unnamed() nothing stays. A resource that moves; does not own the
/// directory.
class NewFile {
 public:
  NewFile() = default;
  NewFile(NewFile&& other) noexcept = default;
  NewFile& operator=(NewFile&& other) noexcept = default;
  ~NewFile() = default;

  /// An empty one. What another copy of this user's has left behind under its name is removed. Until it is published
  /// nobody else may open it: who may can hold its lock.
  /// Returns  std::errc::text_file_busy: another copy of this user's writes it just now; filename_too_long; the
  ///          system's error
  [[nodiscard]] static Result<NewFile> create(int folder, const std::string& name, unsigned mode);
  /// The same, but it has no name at all until publish(). For what is written at once: with ext4 that takes two thirds
  /// of the time. On file systems that cannot do it (O_TMPFILE), and where /proc is missing: as create().
  /// new_folder  nobody can have left anything there: it is not looked for
  [[nodiscard]] static Result<NewFile> create_unnamed(int folder, const std::string& name, unsigned mode,
                                                      bool new_folder = false);
  /// What an earlier one of this user's has left. Returns  std::errc::no_such_file_or_directory: nothing; as create()
  [[nodiscard]] static Result<LeftFile> reopen(int folder, const std::string& name);

  explicit operator bool() const noexcept { return static_cast<bool>(fd_); }
  [[nodiscard]] int fd() const noexcept { return fd_.get(); }
  /// That it got when it was made: not always the one that was asked for, as a directory may say otherwise. Of a
  /// reopened one, that it has.
  [[nodiscard]] unsigned made_mode() const noexcept { return made_mode_; }
  /// That it has.
  [[nodiscard]] unsigned mode() const noexcept { return identity_.st_mode & 07777; }
  /// The file becomes NAME, instead of a file or a link that has the name. Returns  the system's error: it is a
  /// directory, or something that is no file; no_such_file_or_directory: somebody has removed it meanwhile
  [[nodiscard]] Status publish();
  /// It is removed.
  void discard() noexcept;

 private:
  NewFile(int folder, std::string name, std::string partial, UniqueFd fd, const struct stat& identity)
      : folder_(folder),
        name_(std::move(name)),
        partial_(std::move(partial)),
        fd_(std::move(fd)),
        made_mode_(identity.st_mode & 07777),
        identity_(identity) {}
  [[nodiscard]] Status close_to_others();
  [[nodiscard]] Status take_partial_name();
  [[nodiscard]] Status link_beside();

  int folder_ = -1;
  std::string name_;
  std::string partial_;  // its name until it has that one, if it has any
  UniqueFd fd_;
  unsigned made_mode_ = 0;
  // Its st_dev and st_ino no other file has while this one is open. st_nlink 0: it is unnamed.
  struct stat identity_ = {};
};

/// What an earlier copy has left of a file. A resource.
struct LeftFile {
  NewFile file;   ///< to go on with
  UniqueFd base;  ///< without `file`: to be read only. There are no locks, so that another copy may be writing it
};

/// A link gets the name NAME, as by NewFile::publish(). times  as for utimensat(2); may be null
[[nodiscard]] Status publish_link(int folder, const std::string& name, const std::string& target,
                                  const timespec* times);

/// Whether it is a name that files and links have until they are published: no others are called so.
[[nodiscard]] bool is_partial_name(std::string_view name) noexcept;

}  // namespace rdmacomm::copying
