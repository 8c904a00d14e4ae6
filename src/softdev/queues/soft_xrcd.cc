#include "softdev/queues/soft_xrcd.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "softdev/queues/premises.h"
#include "softdev/shared/bound_names.h"
#include "softdev/shared/unix_packet.h"

namespace rdmacomm::softdev {
namespace {

/// Each user has separate domains.
std::string domain_names() {
  return "rdmacomm/soft0/xrcd/" + std::to_string(geteuid()) + "/";
}

std::uint64_t random_number() {
  std::random_device random;
  return std::uint64_t{random()} << 32 | random();
}

/// Waits until no other thread or process is checking for the domain or creating it, so that both together are atomic.
/// A caller that has bound its name and sees no other name is alone. If several see each other, all except the one with
/// the least name unbind and try again. EADDRINUSE: another one stays inside.
UniqueFd enter_alone(const std::string& domain) {
  constexpr std::chrono::seconds kLongest{5};  // the current owner may have lost its core
  const auto end = std::chrono::steady_clock::now() + kLongest;
  const std::string prefix = domain_names() + "entry/" + domain;
  const std::string own = std::to_string(random_number());
  UniqueFd inside;
  while (std::chrono::steady_clock::now() < end) {
    const std::vector<std::string> names = bound_names(prefix);
    if (inside && names.size() <= 1) return inside;
    if (!inside && names.empty()) {
      inside = bind_to(std::string(1, '\0') + prefix + own);
      if (!inside) return inside;
      continue;
    }
    if (inside && *std::ranges::min_element(names) != own) inside.reset();
    sched_yield();
  }
  errno = EADDRINUSE;
  return {};
}

}  // namespace

SoftXrcd::SoftXrcd(const Premises& premises, SharedBlock block)
    : ibv_xrcd{}, segment_(premises.segment), nowhere_(premises, std::move(block), 1, nullptr, nullptr) {
  context = &premises.verbs;
}

int SoftXrcd::enter(int fd, int flags) {
  if (fd == -1) {
    if ((flags & O_CREAT) == 0) return EINVAL;
    identity_ = {~std::uint64_t{0}, random_number()};
    return 0;
  }
  struct stat file {};
  if (fstat(fd, &file) != 0) return errno;
  file_.reset(open(("/proc/self/fd/" + std::to_string(fd)).c_str(), O_PATH | O_CLOEXEC));
  if (!file_) return errno;
  identity_ = {file.st_dev, file.st_ino};
  const std::string domain = std::to_string(file.st_dev) + "/" + std::to_string(file.st_ino) + "/";
  const UniqueFd inside = enter_alone(domain);
  if (!inside) return errno;
  const bool exists = !bound_names(domain_names() + domain).empty();
  // The errno values are the same as in the kernel, drivers/infiniband/core/uverbs_cmd.c.
  if (!exists && (flags & O_CREAT) == 0) return EAGAIN;
  if (exists && (flags & O_EXCL) != 0) return EINVAL;
  marker_ = bind_to(std::string(1, '\0') + domain_names() + domain + std::to_string(random_number()));
  return marker_ ? 0 : errno;
}

void SoftXrcd::detach_context() noexcept {
  marker_.reset();
  file_.reset();
  segment_.free(nowhere_.take_block());
}

}  // namespace rdmacomm::softdev
