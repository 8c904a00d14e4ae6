// place.h - the root for paths: a server's root, which no path can leave, or the whole file system.
#pragma once

#include <string>

#include "base/unique_fd.h"
#include "rdmacomm/result.h"

namespace rdmacomm::copying {

/// A path, cut before its last part. A value.
struct PathParts {
  std::string folder;  ///< with the '/' at its end
  std::string name;    ///< empty: the path ends in '/', "." or "..", and is completely in `folder`

  [[nodiscard]] static PathParts of(const std::string& path);
};

/// The last part of a path, and the directory that it is in.
struct Spot {
  UniqueFd folder;   ///< opened with O_PATH: it need not be readable
  std::string name;  ///< as PathParts::name; empty: the directory itself
};

/// A resource. Threads: any.
class Place {
 public:
  /// Paths have their usual meaning in this process.
  [[nodiscard]] static Place everywhere() { return Place({}); }
  /// Paths are relative to `root`, and stay below it. The kernel refuses absolute paths, "..", and links that lead out
  /// (openat2(2), from Linux 5.6 on). Returns  the system's error: no such directory, or openat2 is refused
  [[nodiscard]] static Result<Place> below(const std::string& root);

  /// Whether the root's path still leads to it. If not, nobody would find the files written there.
  /// Returns  kWrongState: the path leads to another directory, or another one is mounted over it; the system's error:
  ///          the path does not exist
  [[nodiscard]] Status check_root() const;
  /// As open(2). An empty path is the root, or the working directory.
  /// Returns  kInvalidArgument: a path that leads out of the root; the system's error. The context does not name the
  ///          path
  [[nodiscard]] Result<UniqueFd> open(const std::string& path, int flags) const;
  /// Returns  as open(), for the directory
  [[nodiscard]] Result<Spot> find(const std::string& path) const;

 private:
  [[nodiscard]] Status check(const std::string& path) const;
  explicit Place(UniqueFd root, std::string path = {}) : root_(std::move(root)), path_(std::move(path)) {}

  UniqueFd root_;  // empty: everywhere
  std::string path_;
};

/// Whether the name is in /proc, or is a link that leads there, as /dev/stdout is. Then it means an open file, and a
/// copy cannot take its name.
[[nodiscard]] bool leads_into_proc(const Spot& spot);

/// "dir/name"; either may be empty.
[[nodiscard]] std::string joined(const std::string& folder, const std::string& name);

}  // namespace rdmacomm::copying
