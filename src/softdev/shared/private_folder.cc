#include "softdev/shared/private_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace rdmacomm::softdev {
namespace {

/// No other user except root can rename the folder's entries that belong to this user.
bool keeps_entries(const std::string& folder) noexcept {
  struct stat found {};
  if (stat(folder.c_str(), &found) != 0 || !S_ISDIR(found.st_mode)) return false;
  if (found.st_uid != 0 && found.st_uid != geteuid()) return false;
  return (found.st_mode & 022) == 0 || (found.st_mode & S_ISVTX) != 0;
}

}  // namespace

UniqueFd open_private_folder(const std::string& path, bool makes) {
  const std::string parent = path.substr(0, path.rfind('/'));
  errno = EACCES;
  if (!keeps_entries(parent.empty() ? "/" : parent)) return {};
  if (makes && mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return {};
  UniqueFd folder(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat found {};
  if (!folder || fstat(folder.get(), &found) != 0) return {};
  if (found.st_uid == geteuid() && (found.st_mode & 077) == 0) return folder;
  errno = EACCES;
  return {};
}

}  // namespace rdmacomm::softdev
