// directory.h - lists a directory.
#pragma once

#include <dirent.h>

#include <memory>

#include "base/unique_fd.h"
#include "rdmacomm/result.h"

namespace rdmacomm::copying {

/// A resource that can be moved. Threads: one at a time.
class Directory {
 public:
  /// Returns  the system's error
  [[nodiscard]] static Result<Directory> of(UniqueFd opened);

  [[nodiscard]] int fd() const noexcept { return ::dirfd(directory_.get()); }
  /// The next entry, without "." and "..", valid until the next call; null: the end.
  /// Returns  the system's error: the directory may have more entries
  [[nodiscard]] Result<const dirent*> next();

 private:
  struct Close {
    void operator()(DIR* directory) const noexcept { ::closedir(directory); }
  };
  explicit Directory(DIR* directory) : directory_(directory) {}

  std::unique_ptr<DIR, Close> directory_;
};

}  // namespace rdmacomm::copying
