// new_file.h - a file that gets its name when it is complete.
#pragma once

#include <sys/stat.h>

#include <ctime>
#include <string>
#include <string_view>

#include "base/unique_fd.h"
#include "rdmacomm/result.h"

namespace rdmacomm::copying {

struct LeftFile;

/// An unfinished file in its final directory, named ".NAME.rdma_copy-partial". If NAME is long, the name is a short one
/// that is derived from it. If another user has that name or may hold its lock, the name is unpredictable. The file is
/// locked, so that no other copy writes it. publish() gives it its name. Without publish() the file stays for reopen(),
/// unless discard() is called or it came from create_unnamed(). A resource that can be moved; does not own the
/// directory.
class NewFile {
 public:
  NewFile() = default;
  NewFile(NewFile&& other) noexcept = default;
  NewFile& operator=(NewFile&& other) noexcept = default;
  ~NewFile() = default;

  /// Creates an empty file. The rest of an earlier copy by this user under its name is removed. Until publish(), no
  /// other user may open the file, because a user who can open it can hold its lock.
  /// Returns  std::errc::text_file_busy: another copy by this user is writing it; filename_too_long; the system's error
  [[nodiscard]] static Result<NewFile> create(int folder, const std::string& name, unsigned mode);
  /// The same, but it has no name until publish(). For files that are written at once: on ext4 this takes two thirds of
  /// the time. If the file system does not support it (O_TMPFILE), or without /proc: as create().
  /// new_folder  the directory is new, so no earlier rest is searched
  [[nodiscard]] static Result<NewFile> create_unnamed(int folder, const std::string& name, unsigned mode,
                                                      bool new_folder = false);
  /// Opens the rest of an earlier copy by this user. Returns  std::errc::no_such_file_or_directory: none; as create()
  [[nodiscard]] static Result<LeftFile> reopen(int folder, const std::string& name);

  explicit operator bool() const noexcept { return static_cast<bool>(fd_); }
  [[nodiscard]] int fd() const noexcept { return fd_.get(); }
  /// The mode that the file had when it was created. A directory may change the requested mode. For a reopened file,
  /// the mode it has.
  [[nodiscard]] unsigned made_mode() const noexcept { return made_mode_; }
  /// The current mode.
  [[nodiscard]] unsigned mode() const noexcept { return identity_.st_mode & 07777; }
  /// Renames the file to NAME, and replaces a file or a link of that name. Returns  the system's error: NAME is a
  /// directory, or something else that is no file; no_such_file_or_directory: the file was removed meanwhile
  [[nodiscard]] Status publish();
  /// Removes the file.
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
  std::string partial_;  // its name until publish(), if it has one
  UniqueFd fd_;
  unsigned made_mode_ = 0;
  // No other file has the same st_dev and st_ino while this one is open. st_nlink 0: it has no name.
  struct stat identity_ = {};
};

/// The rest of a file from an earlier copy. A resource.
struct LeftFile {
  NewFile file;   ///< to continue with
  UniqueFd base;  ///< if `file` is empty: only for reading. Without locks another copy may be writing it
};

/// Creates a link with the name NAME, as NewFile::publish() does. times  as for utimensat(2); may be null
[[nodiscard]] Status publish_link(int folder, const std::string& name, const std::string& target,
                                  const timespec* times);

/// Whether files and links have such a name until they are published. No others may be named so.
[[nodiscard]] bool is_partial_name(std::string_view name) noexcept;

}  // namespace rdmacomm::copying
