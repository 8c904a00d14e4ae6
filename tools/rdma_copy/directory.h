// directory.h - what is in a directory.
#pragma once

#include <dirent.h>

#include <memory>

#include "base/unique_fd.h"
#include "rdmacomm/result.h"

namespace rdmacomm::copying {

/// A resource that moves. Threads: one.
class Directory {
 public:
  /// Returns  the system's error
  [[nodiscard]] static Result<Directory> of(UniqueFd opened);

  [[nodiscard]] int fd() const noexcept { return ::dirfd(directory_.get()); }
  /// The next entry, until the one after it is asked for, without "." and ".."; null: there are no more.
  /// Returns  the system's error: there may be more
  [[nodiscard]] Result<const dirent*> next();

 private:
  struct Close {
    void operator()(DIR* directory) const noexcept { ::closedir(directory); }
  };
  explicit Directory(DIR* directory) : directory_(directory) {}

  std::unique_ptr<DIR, Close> directory_;
};

}  // namespace rdmacomm::copying
