#include "rdma_copy/place.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <utility>

#include "base/system_call.h"
#include "rdma_copy/messages.h"
#include "support/links.h"

namespace rdmacomm::copying {
namespace {

/// For a path whose directories another process renames all the time.
constexpr int kMaxTries = 1000;

/// openat2(2), from Linux 5.6 on. The C library has no function for it.
UniqueFd open_beneath(int root, const std::string& path, int flags) {
  open_how how{};
  how.flags = static_cast<__u64>(flags | O_CLOEXEC);
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS;
  return UniqueFd(static_cast<int>(::syscall(SYS_openat2, root, path.c_str(), &how, sizeof(how))));
}

bool has_dot_dot(const std::string& path) {
  return ('/' + path + '/').find("/../") != std::string::npos;
}

}  // namespace

std::string joined(const std::string& folder, const std::string& name) {
  if (folder.empty()) return name;
  if (name.empty()) return folder;
  return folder + (folder.ends_with('/') ? "" : "/") + name;
}

PathParts PathParts::of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  PathParts parts;
  if (slash != std::string::npos) parts.folder = path.substr(0, slash + 1);
  parts.name = path.substr(parts.folder.size());
  if (parts.name == "." || parts.name == "..") parts = {.folder = path, .name = ""};
  return parts;
}

Result<Place> Place::below(const std::string& root) {
  UniqueFd fd(::open(root.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!fd) return make_error(last_system_error(), "cannot serve \"" + escaped(root) + '"');
  if (!open_beneath(fd.get(), ".", O_PATH)) {
    return make_error(last_system_error(), "cannot serve \"" + escaped(root) +
                                               "\": openat2(2), which keeps paths below it, is refused; it needs "
                                               "Linux 5.6, and in a container a seccomp profile that allows it");
  }
  return Place(std::move(fd), root);
}

Status Place::check_root() const {
  struct stat opened = {};
  struct stat named = {};
  if (!root_) return {};
  constexpr const char* kMoved =
      "the server's root is another directory now, or is mounted over: start the server again";
  if (::fstat(root_.get(), &opened) != 0 || ::stat(path_.c_str(), &named) != 0) {
    return make_error(last_system_error(), kMoved);
  }
  if (opened.st_dev == named.st_dev && opened.st_ino == named.st_ino) return {};
  return make_error(Errc::kWrongState, kMoved);
}

/// Checks for errors that openat2 would report less clearly.
Status Place::check(const std::string& path) const {
  if (path.find('\0') != std::string::npos) return make_error(Errc::kInvalidArgument, "it contains a NUL byte");
  if (!root_) return {};
  if (path.starts_with('/')) {
    return make_error(Errc::kInvalidArgument, "it is an absolute path: paths on the server are relative to its root");
  }
  return has_dot_dot(path) ? Status(make_error(Errc::kInvalidArgument, "it contains \"..\", which is not allowed"))
                           : Status();
}

Result<UniqueFd> Place::open(const std::string& path, int flags) const {
  if (Status good = check(path); !good.ok()) return good.error();
  const std::string looked_up = path.empty() ? "." : path;
  if (!root_) {
    UniqueFd fd(::open(looked_up.c_str(), flags | O_CLOEXEC));
    return fd ? Result<UniqueFd>(std::move(fd)) : make_error(last_system_error(), "");
  }
  for (int tries = 1;; ++tries) {
    UniqueFd fd = open_beneath(root_.get(), looked_up, flags);
    if (fd) return fd;
    const std::error_code failed = last_system_error();
    if (failed == std::errc::interrupted) continue;
    // A directory in the path was renamed meanwhile, or another program has a lease on the file, which it must give up
    // (O_NONBLOCK).
    if (failed == std::errc::resource_unavailable_try_again && tries < kMaxTries) continue;
    if (failed == std::errc::cross_device_link) {
      return make_error(Errc::kInvalidArgument, "it leads out of the root directory of the server");
    }
    return make_error(failed, "");
  }
}

bool leads_into_proc(const Spot& spot) {
  UniqueFd next;
  int folder = spot.folder.get();
  std::string name = spot.name;
  for (int links = 0; links <= programs::kMaxLinks; ++links) {
    if (programs::is_in_proc(folder)) return true;
    const std::string text = programs::link_text(folder, name);
    if (text.empty()) return false;
    const PathParts parts = PathParts::of(text);
    const std::string to = parts.folder.empty() ? "." : parts.folder;
    UniqueFd opened(::openat(folder, to.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!opened) return false;
    next = std::move(opened);
    folder = next.get();
    name = parts.name;
  }
  return false;
}

Result<Spot> Place::find(const std::string& path) const {
  if (Status good = check(path); !good.ok()) return good.error();
  PathParts parts = PathParts::of(path);
  auto opened = open(parts.folder, O_PATH | O_DIRECTORY);
  if (!opened) return opened.error();
  return Spot{std::move(*opened), std::move(parts.name)};
}

}  // namespace rdmacomm::copying
