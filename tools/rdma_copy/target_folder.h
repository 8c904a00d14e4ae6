// target_folder.h - a directory that receives copied entries.
#pragma once

#include <atomic>
#include <optional>
#include <string>

#include "base/unique_fd.h"
#include "rdma_copy/messages.h"
#include "rdmacomm/result.h"

namespace rdmacomm::copying {

/// The user can write to it until settle(), which sets its mode and time. A resource.
/// Threads: release() from any; all others on one.
class TargetFolder {
 public:
  /// opened  empty: it could not be opened, and its content is left out
  /// is_absent  it would be created, and counts as empty; `opened` is another directory in its place
  TargetFolder(std::string path, UniqueFd opened, bool is_absent = false)
      : path_(std::move(path)), fd_(std::move(opened)), is_absent_(is_absent) {}
  /// The directory of `entry`, at `path`; does nothing yet.
  TargetFolder(std::string path, Entry entry) : path_(std::move(path)), entry_(std::move(entry)) {}
  TargetFolder(const TargetFolder&) = delete;
  TargetFolder& operator=(const TargetFolder&) = delete;
  ~TargetFolder() = default;

  /// Creates it in `parent`, unless it exists, and opens it. mode  for a new one, and with `archive` for any
  /// Returns  the system's error: it is left out
  [[nodiscard]] Status make(const TargetFolder& parent, unsigned mode, bool archive);
  /// Opens it if it exists; if not, behaves as if it had been created. Returns  as make()
  [[nodiscard]] Status look_into(const TargetFolder& parent);

  /// Whether a file or a link could have that name. Returns  is_a_directory, not_supported: the name belongs to
  /// something else
  [[nodiscard]] Status would_take(const std::string& name) const;

  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  [[nodiscard]] std::uint32_t id() const noexcept { return entry_.id; }
  [[nodiscard]] int fd() const noexcept { return fd_.get(); }
  [[nodiscard]] bool left_out() const noexcept { return !fd_; }
  /// make() created it: no earlier copy can have left anything in it.
  [[nodiscard]] bool is_new() const noexcept { return is_new_; }

  // Users are the source, until it has left the directory, and each file that is being written in it.
  void use() noexcept { ++users_; }
  /// true: that was the last user. Everything in it is written, except subdirectories, which have their own users.
  [[nodiscard]] bool release() noexcept { return --users_ == 0; }
  /// Sets mode and time, and syncs it to the disk if asked. Returns  the system's error
  [[nodiscard]] Status settle(bool archive, bool sync) const;

 private:
  std::string path_;
  Entry entry_ = {};
  UniqueFd fd_ = UniqueFd();
  std::optional<unsigned> mode_ = {};  // set when all of its content is written
  bool is_absent_ = false;             // it would be created
  bool is_new_ = false;
  std::atomic<unsigned> users_{1};
};

}  // namespace rdmacomm::copying
