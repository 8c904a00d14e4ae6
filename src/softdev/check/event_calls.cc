// The calls that wait for completion events, in front of those of libibverbs and the C library.
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <sys/epoll.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <map>
#include <mutex>
#include <set>

#include "softdev/check/channels.h"
#include "softdev/check/locked.h"
#include "softdev/check/next.h"
#include "softdev/check/objects.h"
#include "softdev/check/options.h"

namespace check = rdmacomm::softdev::check;

namespace {

/// The channel with a descriptor; nullptr: none.
ibv_comp_channel* channel_of(int fd) {
  const check::Locked locked;
  return check::objects().channel_of(fd);
}

bool blocks(int fd) {
  const int error = errno;
  const int flags = fcntl(fd, F_GETFL);
  errno = error;
  return flags >= 0 && (flags & O_NONBLOCK) == 0;
}

/// Sleeps for up to a second. Returns true if the descriptor has become readable, or a signal has arrived.
bool sleeps_short(int fd) {
  constexpr int kSecond = 1000;  // milliseconds
  RDMACOMM_BEHIND(poll);
  pollfd readable{fd, POLLIN, 0};
  return behind(&readable, 1, kSecond) != 0;
}

/// A program that waits without a limit for one channel only.
void check_wait(int fd, int milliseconds) {
  if (milliseconds >= 0 || check::Inside::is_inside() || check::objects().channels() == 0) return;
  ibv_comp_channel* const channel = channel_of(fd);
  if (channel == nullptr || !check::check_sleep(channel, false) || !check::options().sleeps) return;
  if (!sleeps_short(fd)) static_cast<void>(check::check_sleep(channel, true));
}

/// The descriptors of each epoll descriptor.
struct EpollSets {
  std::mutex mutex;
  std::map<int, std::set<int>> all;
};
EpollSets& epoll_sets() {
  static auto& sets = *new EpollSets;  // never destroyed: programs wait until they end
  return sets;
}

void check_epoll_wait(int epoll, int milliseconds) {
  if (milliseconds >= 0 || check::Inside::is_inside() || check::objects().channels() == 0) return;
  int fd = -1;
  {
    const std::scoped_lock lock(epoll_sets().mutex);
    const auto found = epoll_sets().all.find(epoll);
    if (found == epoll_sets().all.end() || found->second.size() != 1) return;
    fd = *found->second.begin();
  }
  check_wait(fd, milliseconds);
}

}  // namespace

RDMACOMM_CHECKS int ibv_get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context) {
  RDMACOMM_BEHIND(ibv_get_cq_event);
  if (blocks(channel->fd)) check_wait(channel->fd, -1);
  const int result = behind(channel, cq, cq_context);
  if (result != 0) return result;
  const check::StackId stack = check::capture_stack();
  const check::Locked locked;
  auto* const known = check::objects().find_as<check::Cq>(*cq);
  if (known == nullptr) return 0;
  known->is_armed = known->is_solicited = false;
  ++known->events.got;
  known->events.last_got = stack;
  return 0;
}

RDMACOMM_CHECKS void ibv_ack_cq_events(ibv_cq* cq, unsigned count) {
  RDMACOMM_BEHIND(ibv_ack_cq_events);
  {
    const check::Locked locked;
    auto* const known = check::objects().find_as<check::Cq>(cq);
    if (check::was_acknowledged(cq)) {
      const std::uint64_t most = known == nullptr ? 0 : known->events.waiting();
      count = static_cast<unsigned>(std::min<std::uint64_t>(count, most));
    }
    if (known != nullptr) known->events.acknowledged += count;
  }
  if (count != 0) behind(cq, count);
}

RDMACOMM_CHECKS int poll(pollfd* descriptors, nfds_t count, int milliseconds) {
  RDMACOMM_BEHIND(poll);
  if (count == 1 && (descriptors[0].events & POLLIN) != 0) check_wait(descriptors[0].fd, milliseconds);
  return behind(descriptors, count, milliseconds);
}

RDMACOMM_CHECKS int epoll_ctl(int epoll, int operation, int fd, epoll_event* event) noexcept {
  RDMACOMM_BEHIND(epoll_ctl);
  const int result = behind(epoll, operation, fd, event);
  if (result != 0 || check::Inside::is_inside()) return result;
  const check::Inside inside;
  const std::scoped_lock lock(epoll_sets().mutex);
  if (operation == EPOLL_CTL_ADD) epoll_sets().all[epoll].insert(fd);
  if (operation == EPOLL_CTL_DEL) epoll_sets().all[epoll].erase(fd);
  return result;
}

RDMACOMM_CHECKS int epoll_wait(int epoll, epoll_event* events, int most, int milliseconds) {
  RDMACOMM_BEHIND(epoll_wait);
  check_epoll_wait(epoll, milliseconds);
  return behind(epoll, events, most, milliseconds);
}
