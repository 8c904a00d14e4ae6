#include "softdev/host/port_watch.h"

#include <ifaddrs.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netpacket/packet.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <utility>

#include "softdev/common/service_thread.h"
#include "softdev/host/gid_table.h"
#include "softdev/host/traffic_file.h"
#include "verbs/gid.h"

namespace rdmacomm::softdev {
namespace {

bool same_table(const std::vector<ibv_gid_entry>& a, const std::vector<ibv_gid_entry>& b) {
  return std::ranges::equal(a, b, [](const ibv_gid_entry& x, const ibv_gid_entry& y) {
    return verbs::equal(x.gid, y.gid) && x.gid_type == y.gid_type && x.ndev_ifindex == y.ndev_ifindex;
  });
}

/// Returns  true if the message is about a link.
bool apply(const nlmsghdr& message, HostLinks& links) {
  const bool gone = message.nlmsg_type == RTM_DELLINK;
  if (!gone && message.nlmsg_type != RTM_NEWLINK) return false;
  if (message.nlmsg_len < NLMSG_LENGTH(sizeof(ifinfomsg))) return false;
  const auto* const link = static_cast<const ifinfomsg*>(NLMSG_DATA(&message));
  if (link->ifi_family != AF_UNSPEC) return false;  // e.g. a bridge port: removed from the bridge only
  links.set(link->ifi_index, gone ? 0 : link->ifi_flags);
  return true;
}

}  // namespace

void HostLinks::set(int interface, unsigned flags) {
  constexpr unsigned kUp = IFF_UP | IFF_RUNNING;
  if ((flags & kUp) == kUp) {
    up_.insert(interface);
  } else {
    up_.erase(interface);
  }
}

int HostLinks::read() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return errno;
  up_.clear();
  for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_PACKET) continue;  // one for each interface
    set(reinterpret_cast<const sockaddr_ll*>(one->ifa_addr)->sll_ifindex, one->ifa_flags);
  }
  freeifaddrs(list);
  return 0;
}

int PortWatch::start(const DeviceIdentity& identity) {
  if (const int error = open(identity); error != 0) return error;
  auto stop = WakeEvent::create();
  int error = stop.code().value();
  if (stop) {
    stop_ = std::move(*stop);
    error = start_service_thread(thread_, "soft0-port", [this] { run(); });
  }
  if (error != 0) socket_.reset();
  return error;
}

void PortWatch::stop() noexcept {
  if (!thread_.joinable()) return;
  stop_.signal();
  thread_.join();
}

void PortWatch::run() {
  constexpr int kAgainMs = 1000;
  for (;;) {
    std::array<pollfd, 2> sockets{{{socket_.get(), POLLIN, 0}, {stop_.fd(), POLLIN, 0}}};
    (void)poll(sockets.data(), sockets.size(), is_behind() ? kAgainMs : -1);
    if (sockets[1].revents != 0) return;
    look();
  }
}

/// True if the system did not answer the last query.
bool PortWatch::is_behind() {
  const std::scoped_lock lock(mutex_);
  return old_links_ || old_gids_;
}

int PortWatch::open(const DeviceIdentity& identity) {
  identity_ = identity;
  UniqueFd socket(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE));
  if (!socket) return errno;
  sockaddr_nl address{};
  address.nl_family = AF_NETLINK;
  address.nl_groups = RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR;
  if (bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) return errno;
  // The socket receives all changes after this point.
  host_ = device_guid(0);
  link_downed_ = read_link_downed(host_);
  if (const int error = links_.read(); error != 0) return error;
  if (const int error = gid_table(identity, gids_); error != 0) return error;
  socket_ = std::move(socket);
  return 0;
}

void PortWatch::look() {
  if (!socket_) return;
  const std::scoped_lock lock(mutex_);
  read_messages();
  // A query can fail, for example if the process has no free descriptor. The next call repeats it.
  if (HostLinks links; old_links_ && links.read() == 0) {
    old_links_ = false;
    take_links(std::move(links));
  }
  if (std::vector<ibv_gid_entry> gids; old_gids_ && gid_table(identity_, gids) == 0) {
    old_gids_ = false;
    take_gids(std::move(gids));
  }
}

int PortWatch::gids(std::vector<ibv_gid_entry>& table) {
  look();
  const std::scoped_lock lock(mutex_);
  if (!socket_ || old_gids_) return gid_table(identity_, table);
  table = gids_;
  return 0;
}

void PortWatch::read_messages() {
  alignas(nlmsghdr) std::array<std::byte, 16384> buffer;
  for (;;) {
    ssize_t left = recv(socket_.get(), buffer.data(), buffer.size(), 0);
    if (left < 0 && errno == EINTR) continue;
    if (left < 0 && errno != ENOBUFS) return;
    old_gids_ = true;
    old_links_ = old_links_ || left < 0;  // ENOBUFS: the socket has dropped messages, so links_ is out of date
    if (old_links_) continue;
    const auto* message = reinterpret_cast<const nlmsghdr*>(buffer.data());
    for (; NLMSG_OK(message, left); message = NLMSG_NEXT(message, left)) {
      HostLinks links = links_;
      if (apply(*message, links)) take_links(std::move(links));
    }
  }
}

void PortWatch::take_gids(std::vector<ibv_gid_entry> gids) {
  if (same_table(gids, gids_)) return;
  gids_ = std::move(gids);
  report(IBV_EVENT_GID_CHANGE);
}

void PortWatch::take_links(HostLinks links) {
  const bool was_up = links_.any_up();
  links_ = std::move(links);
  if (links_.any_up() == was_up) return;
  if (was_up) raise_link_downed(host_, ++link_downed_);
  report(was_up ? IBV_EVENT_PORT_ERR : IBV_EVENT_PORT_ACTIVE);
}

void PortWatch::report(ibv_event_type type) {
  ibv_async_event event{};
  event.event_type = type;
  for (unsigned port = 1; port <= identity_.ports; ++port) {
    event.element.port_num = static_cast<int>(port);
    events_.push(event, source_);
  }
}

void PortWatch::report_device_failure() {
  ibv_async_event event{};
  event.event_type = IBV_EVENT_DEVICE_FATAL;
  events_.push(event, source_);
}

}  // namespace rdmacomm::softdev
