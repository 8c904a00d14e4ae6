#include "softdev/tcp/group_target.h"

#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <set>
#include <utility>

#include "softdev/common/device_limits.h"
#include "softdev/host/port_watch.h"
#include "softdev/tcp/tcp_owner.h"
#include "softdev/tcp/tcp_service.h"
#include "softdev/tcp/tcp_target.h"
#include "verbs/gid.h"

namespace rdmacomm::softdev {
namespace {

/// Maximum number of datagrams before other sockets continue.
constexpr int kMaxAtOnce = 64;

/// The interfaces whose addresses it may use. Loopback is none of them.
std::set<unsigned> interfaces_of(TcpService& service) {
  std::vector<ibv_gid_entry> table;
  std::set<unsigned> interfaces;
  if (service.premises().port.gids(table) != 0) return interfaces;
  for (const ibv_gid_entry& entry : table) {
    const auto& allowed = service.premises().addresses;
    const bool is_usable = verbs::reach_of(entry.gid) != verbs::Reach::kHost && entry.ndev_ifindex != 0;
    if (is_usable && (!allowed || allowed->contains(entry.gid))) interfaces.insert(entry.ndev_ifindex);
  }
  return interfaces;
}

bool join_at(int socket, const ibv_gid& group, unsigned interface) noexcept {
  if (verbs::is_mapped_ipv4(group)) {
    ip_mreqn membership{};
    std::memcpy(&membership.imr_multiaddr, group.raw + 12, sizeof(membership.imr_multiaddr));
    membership.imr_ifindex = static_cast<int>(interface);
    return setsockopt(socket, IPPROTO_IP, IP_ADD_MEMBERSHIP, &membership, sizeof(membership)) == 0;
  }
  ipv6_mreq membership{};
  std::memcpy(&membership.ipv6mr_multiaddr, group.raw, sizeof(group.raw));
  membership.ipv6mr_interface = interface;
  return setsockopt(socket, IPPROTO_IPV6, IPV6_JOIN_GROUP, &membership, sizeof(membership)) == 0;
}

}  // namespace

UniqueFd join_group(TcpService& service, const ibv_gid& group) {
  const int family = verbs::is_mapped_ipv4(group) ? AF_INET : AF_INET6;
  UniqueFd joined(::socket(family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!joined) return joined;
  // All members of a group on this host have the same address and port.
  const int on = 1;
  (void)setsockopt(joined.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  // Bound to the group's address, it gets datagrams to this group only.
  const verbs::SocketAddress address = verbs::socket_address_of(group, kGroupPort, 0);
  if (bind(joined.get(), address.get(), address.length) != 0) return {};
  if (service.premises().port.is_bound()) {
    // By default, a socket also receives datagrams that arrive at an interface on which another socket has joined.
    constexpr int kOff = 0;
    (void)(family == AF_INET ? setsockopt(joined.get(), IPPROTO_IP, IP_MULTICAST_ALL, &kOff, sizeof(kOff))
                             : setsockopt(joined.get(), IPPROTO_IPV6, IPV6_MULTICAST_ALL, &kOff, sizeof(kOff)));
  }
  bool has_joined = false;
  for (const unsigned interface : interfaces_of(service)) {
    has_joined = join_at(joined.get(), group, interface) || has_joined;
  }
  if (has_joined) return joined;
  errno = ENODEV;
  return {};
}

GroupTarget::GroupTarget(TcpService& service, UniqueFd socket, const ibv_gid& group, const TcpOwner& own)
    : service_(service),
      socket_(std::move(socket)),
      group_(group),
      own_qpn_(own.number()),
      pd_(own.pd_number()),
      datagram_(sizeof(GroupDatagram) + kPortMtuBytes + 1) {}

std::uint32_t GroupTarget::events() const noexcept {
  return EPOLLIN;
}

bool GroupTarget::progress() {
  has_received_ = has_more_ = false;
  for (int count = 0; !over_ && count < kMaxAtOnce; ++count) {
    verbs::SocketAddress from;
    from.length = sizeof(from.storage);
    const ssize_t got =
        recvfrom(socket_.get(), datagram_.data(), datagram_.size(), MSG_DONTWAIT, from.get(), &from.length);
    if (got < 0) return !over_;  // none; or a reported error of an earlier datagram, which does not matter
    has_received_ = true;
    deliver(static_cast<std::size_t>(got), verbs::gid_of(*from.get()));
  }
  has_more_ = !over_;
  return !over_;
}

/// Rejects a source that is not the sender, and a Q_Key that would mean "the target's own".
bool GroupTarget::is_honest(const GroupDatagram& head, std::size_t bytes, const ibv_gid& from) const noexcept {
  return head.magic == kTcpMagic && head.version == kTcpVersion && head.initiator_qpn <= 0xffffff &&
         softdev::is_datagram(head.request) && sizeof(head) + head.request.length == bytes &&
         head.request.key >> 31 == 0 && head.address.is_global != 0 && head.address.source_lid == 0 &&
         verbs::equal(head.address.source, from) && verbs::equal(head.address.target, group_);
}

LocalWire& GroupTarget::wire_of(std::uint32_t initiator_qpn) {
  if (wires_.size() >= kMaxSenders && !wires_.contains(initiator_qpn)) wires_.clear();
  std::unique_ptr<LocalWire>& wire = wires_[initiator_qpn];
  // The queue pair may have been reset since.
  if (wire == nullptr || !wire->is_up()) {
    wire = std::make_unique<LocalWire>(
        LocalEnd{&service_.premises().local, initiator_qpn, pd_, kPortMtuBytes, Service::kDatagram, nullptr, true},
        own_qpn_);
    wire->attach();
  }
  return *wire;
}

void GroupTarget::deliver(std::size_t bytes, const ibv_gid& from) {
  GroupDatagram head;
  if (bytes < sizeof(head)) return;
  std::memcpy(static_cast<void*>(&head), datagram_.data(), sizeof(head));
  if (!is_honest(head, bytes, from)) return;
  SoftAh ah = handle_of(head.address);
  ibv_sge slice{reinterpret_cast<std::uint64_t>(datagram_.data() + sizeof(head)), head.request.length, 0};
  ibv_send_wr wr = work_request_of(head.request, slice);
  wr.wr.ud = {&ah, own_qpn_, head.request.key};
  const ExecResult result = wire_of(head.initiator_qpn).send_datagram(wr);
  service_.premises().local.traffic.add(result.succeeded() ? Count::kGroupPacketsReceived : Count::kDiscarded);
}

/// A queue pair stays in its groups when it is reset.
bool GroupTarget::forget(std::uint32_t qpn, bool comes_again) {
  if (qpn == own_qpn_ && !comes_again) over_ = true;
  return over_;
}

bool GroupTarget::leave(std::uint32_t qpn, const ibv_gid& group) {
  if (qpn == own_qpn_ && verbs::equal(group, group_)) over_ = true;
  return over_;
}

}  // namespace rdmacomm::softdev
