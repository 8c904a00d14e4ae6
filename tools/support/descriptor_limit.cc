#include "support/descriptor_limit.h"

#include <sys/resource.h>

#include <algorithm>
#include <string>

namespace rdmacomm::programs {

Status allow_descriptors(std::uint64_t count) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= count) return {};
  if (limit.rlim_max < count) {
    return make_error(
        std::make_error_code(std::errc::too_many_files_open),
        "a process needs " + std::to_string(count) + " file descriptors, but may open at most " +
            std::to_string(limit.rlim_max) +
            " (ulimit -Hn): raise this limit as root, with nofile in /etc/security/limits.conf, LimitNOFILE= in a "
            "systemd unit or --ulimit=nofile= for a container");
  }
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, 2 * count);
  (void)setrlimit(RLIMIT_NOFILE, &limit);  // every process may raise it up to the hard limit
  return {};
}

}  // namespace rdmacomm::programs
