#include "softdev/preload/open_failure.h"

#include <cerrno>
#include <cstring>

#include "softdev/context/settings.h"

namespace rdmacomm::softdev::preload {
namespace {

std::string reason(int error) {
  switch (error) {
    case EINVAL:
      if (std::string setting = invalid_setting(); !setting.empty()) return setting;
      break;
    case EMFILE: return "the process has too many open files; raise its limit with ulimit -n";
    case ENFILE: return "the system has too many open files";
    case EPERM:
    case EACCES:
    case ENOSYS:
      return "the system refuses a call, perhaps by a seccomp filter; soft0 needs memfd_create, eventfd2 and "
             "epoll_create1";
    case ENOMEM: return "no memory; the limit of the container or of the process may be too low";
    default: break;
  }
  return "";
}

}  // namespace

std::string describe_open_failure(const std::string& name, int error) {
  const char* const known = strerrordesc_np(error);
  const std::string text = known == nullptr ? "error " + std::to_string(error) : known;
  const std::string why = reason(error);
  return "cannot open " + name + ": " + (why.empty() ? text : why + " (" + text + ")");
}

}  // namespace rdmacomm::softdev::preload
