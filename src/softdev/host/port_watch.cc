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

/// The name of the interface in a message about a link.
std::string_view name_in(const nlmsghdr& message) {
  const auto* const link = static_cast<const ifinfomsg*>(NLMSG_DATA(&message));
  std::size_t left = IFLA_PAYLOAD(&message);
  for (const rtattr* one = IFLA_RTA(link); RTA_OK(one, left); one = RTA_NEXT(one, left)) {
    if (one->rta_type != IFLA_IFNAME) continue;
    const std::string_view padded(static_cast<const char*>(RTA_DATA(one)), RTA_PAYLOAD(one));
    return padded.substr(0, padded.find('\0'));
  }
  return {};
}

/// Returns  true if the message is about a link.
bool apply(const nlmsghdr& message, HostLinks& links) {
  const bool gone = message.nlmsg_type == RTM_DELLINK;
  if (!gone && message.nlmsg_type != RTM_NEWLINK) return false;
  if (message.nlmsg_len < NLMSG_LENGTH(sizeof(ifinfomsg))) return false;
  const auto* const link = static_cast<const ifinfomsg*>(NLMSG_DATA(&message));
  if (link->ifi_family != AF_UNSPEC) return false;  // e.g. a bridge port: removed from the bridge only
  links.set(link->ifi_index, gone ? 0 : link->ifi_flags, name_in(message));
  return true;
}

}  // namespace

void HostLinks::set(int interface, unsigned flags, std::string_view name) {
  constexpr unsigned kUp = IFF_UP | IFF_RUNNING;
  const bool counts = interface_.empty() || name == interface_;  // an interface may get another name
  if (counts && (flags & kUp) == kUp) {
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
    set(reinterpret_cast<const sockaddr_ll*>(one->ifa_addr)->sll_ifindex, one->ifa_flags, one->ifa_name);
  }
  freeifaddrs(list);
  return 0;
}

int PortWatch::start(const DeviceIdentity& identity, std::function<void()> follow) {
  identity_ = identity;
  if (const int error = open(); error != 0) return error;
  auto wake = WakeEvent::create();
  int error = wake.code().value();
  if (wake) {
    wake_ = std::move(*wake);
    follow_ = std::move(follow);
    error = start_service_thread(thread_, "soft0-port", [this] { run(); });
  }
  if (error != 0) {
    socket_.reset();
    is_up_.store(true, std::memory_order_release);
  }
  return error;
}

void PortWatch::stop() noexcept {
  if (!thread_.joinable()) return;
  stopping_.store(true, std::memory_order_relaxed);
  wake_.signal();
  thread_.join();
}

void PortWatch::run() {
  constexpr int kAgainMs = 1000;
  for (;;) {
    std::array<pollfd, 2> sockets{{{socket_.get(), POLLIN, 0}, {wake_.fd(), POLLIN, 0}}};
    (void)poll(sockets.data(), sockets.size(), is_behind() ? kAgainMs : -1);
    if (sockets[1].revents != 0) (void)wake_.clear();
    if (stopping_.load(std::memory_order_relaxed)) return;
    look();
    if (is_bound()) follow_();
  }
}

/// True if the system did not answer the last query.
bool PortWatch::is_behind() {
  const std::scoped_lock lock(mutex_);
  return old_links_ || old_gids_;
}

int PortWatch::open() {
  links_ = HostLinks(identity_.interface);
  UniqueFd socket(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE));
  if (!socket) return errno;
  sockaddr_nl address{};
  address.nl_family = AF_NETLINK;
  address.nl_groups = RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR;
  if (bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) return errno;
  // The socket receives all changes after this point.
  host_ = device_guid(0);
  link_downed_ = read_link_downed(host_, identity_);
  if (const int error = links_.read(); error != 0) return error;
  if (const int error = read_tables(tables_); error != 0) return error;
  is_up_.store(!is_bound() || links_.any_up(), std::memory_order_release);
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
  if (Tables tables; old_gids_ && read_tables(tables) == 0) {
    old_gids_ = false;
    take_tables(std::move(tables));
  }
}

int PortWatch::read_tables(Tables& tables) const {
  int error = gid_table(identity_, tables.own);
  if (error == 0 && is_bound()) error = host_gids(identity_, tables.host);
  return error;
}

int PortWatch::gids(std::vector<ibv_gid_entry>& table, std::vector<ibv_gid_entry>* host) {
  look();
  const std::scoped_lock lock(mutex_);
  Tables read;
  const bool is_cached = socket_ && !old_gids_;
  if (!is_cached) {
    if (const int error = read_tables(read); error != 0) return error;
  }
  const Tables& tables = is_cached ? tables_ : read;
  table = tables.own;
  if (host != nullptr) *host = is_bound() ? tables.host : tables.own;
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

void PortWatch::take_tables(Tables tables) {
  const bool is_same = same_table(tables.own, tables_.own);
  tables_ = std::move(tables);
  if (!is_same) report(IBV_EVENT_GID_CHANGE);
}

void PortWatch::take_links(HostLinks links) {
  const bool was_up = links_.any_up();
  links_ = std::move(links);
  if (links_.any_up() == was_up) return;
  if (was_up) raise_link_downed(host_, identity_, ++link_downed_);
  if (is_bound()) {
    is_up_.store(!was_up, std::memory_order_release);
    changes_.fetch_add(1, std::memory_order_release);
    wake_.signal();  // this may be another thread
  }
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
