// target_folder.h - a directory that things are copied into.
#pragma once

#include <atomic>
#include <optional>
#include <string>

#include "base/unique_fd.h"
#include "rdma_copy/messages.h"
#include "rdmacomm/result.h"

namespace rdmacomm::copying {

/// It can be written by this user until it is settled, and has its mode and time from then on. A resource.
/// Threads: leave() from any; of the others one calls.
class TargetFolder {
 public:
  /// opened  nothing: it could not be, and all that is in it is left out
  /// is_absent  it would be made: nothing is in it, whatever is in what is opened in its place
  TargetFolder(std::string path, UniqueFd opened, bool is_absent = false)
      : path_(std::move(path)), fd_(std::move(opened)), is_absent_(is_absent) {}
  /// What `entry` says, in a directory at `path`; nothing is done.
  TargetFolder(std::string path, Entry entry) : path_(std::move(path)), entry_(std::move(entry)) {}
  TargetFolder(const TargetFolder&) = delete;
  TargetFolder& operator=(const TargetFolder&) = delete;
  ~TargetFolder() = default;

  /// Makes it in `parent`, unless it is there, and opens it. mode  of a new one, and with `archive` of any
  /// Returns  the system's error: it is left out
  [[nodiscard]] Status make(const TargetFolder& parent, unsigned mode, bool archive);
  /// Opens it where it is there, and does as if it had been made where not. Returns  as make()
  [[nodiscard]] Status look_into(const TargetFolder& parent);

  /// Whether a file or a link could have that name. Returns  is_a_directory, not_supported: what has it is neither
  [[nodiscard]] Status would_take(const std::string& name) const;

  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  [[nodiscard]] std::uint32_t id() const noexcept { return entry_.id; }
  [[nodiscard]] int fd() const noexcept { return fd_.get(); }
  [[nodiscard]] bool left_out() const noexcept { return !fd_; }
  /// make() made it: no earlier copy has left anything in it.
  [[nodiscard]] bool is_new() const noexcept { return is_new_; }

  // The source, which has not left it, and each file that is being written in it use it.
  void use() noexcept { ++users_; }
  /// true: that was the last one. All that is in it is there, but for directories, which have theirs.
  [[nodiscard]] bool leave() noexcept { return --users_ == 0; }
  /// Mode and time, and on the disk. Returns  the system's error
  [[nodiscard]] Status settle(bool archive, bool sync) const;

 private:
  std::string path_;
  Entry entry_ = {};
  UniqueFd fd_ = UniqueFd();
  std::optional<unsigned> mode_ = {};  // that it gets when all in it is written
  bool is_absent_ = false;             // it would be made
  bool is_new_ = false;
  std::atomic<unsigned> users_{1};
};

}  // namespace rdmacomm::copying
