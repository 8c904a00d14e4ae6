#include "softdev/tcp/group_sender.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <new>

#include "softdev/common/device_limits.h"
#include "softdev/host/port_watch.h"
#include "softdev/host/soft_ah.h"
#include "softdev/local/local_wire.h"
#include "softdev/memory/requests.h"
#include "softdev/tcp/datagram_format.h"
#include "softdev/tcp/tcp_link.h"
#include "verbs/gid.h"

namespace rdmacomm::softdev {
namespace {

constexpr std::size_t kMaxSources = 16;

/// Returns  the index of the interface that has the address; 0: none
int interface_of(PortWatch& port, const ibv_gid& address) {
  std::vector<ibv_gid_entry> table;
  if (port.gids(table) != 0) return 0;
  const auto found = std::ranges::find_if(table, [&](const auto& entry) { return verbs::equal(entry.gid, address); });
  return found == table.end() ? 0 : static_cast<int>(found->ndev_ifindex);
}

bool set(int socket, int level, int option, const auto& value) noexcept {
  return setsockopt(socket, level, option, &value, sizeof(value)) == 0;
}

UniqueFd make_socket(const ibv_gid& source, int interface) {
  const bool is_ipv4 = verbs::is_mapped_ipv4(source);
  UniqueFd made(socket(is_ipv4 ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!made) return made;
  const verbs::SocketAddress from = verbs::socket_address_of(source, 0, static_cast<std::uint32_t>(interface));
  const int fd = made.get();
  constexpr int kNo = 0;
  const ip_mreqn by{{}, {}, interface};
  const bool is_ready =
      bind(fd, from.get(), from.length) == 0 &&
      (is_ipv4
           ? set(fd, IPPROTO_IP, IP_MULTICAST_IF, by) && set(fd, IPPROTO_IP, IP_MULTICAST_LOOP, kNo)
           : set(fd, IPPROTO_IPV6, IPV6_MULTICAST_IF, interface) && set(fd, IPPROTO_IPV6, IPV6_MULTICAST_LOOP, kNo));
  return is_ready ? std::move(made) : UniqueFd();
}

}  // namespace

/// Returns  -1: it cannot send from there
int GroupSender::socket_from(const ibv_gid& source) {
  const auto found = std::ranges::find_if(sockets_, [&](const auto& one) { return verbs::equal(one.source, source); });
  if (found != sockets_.end()) return found->socket.get();
  const int interface = interface_of(port_, source);
  if (interface == 0) return -1;
  if (sockets_.size() >= kMaxSources) sockets_.clear();
  sockets_.push_back({source, make_socket(source, interface)});
  return sockets_.back().socket.get();
}

void GroupSender::send(const ibv_send_wr& wr, const LocalEnd& own, std::uint32_t bytes) noexcept {
  const SoftAh& ah = SoftAh::from(wr.wr.ud.ah);
  const ibv_gid& group = ah.attributes.grh.dgid;
  const bool is_possible = verbs::reach_of(ah.source) != verbs::Reach::kHost &&
                           verbs::is_mapped_ipv4(ah.source) == verbs::is_mapped_ipv4(group);
  if (!is_possible) return;
  try {
    const int fd = socket_from(ah.source);
    if (fd < 0) return;
    GroupDatagram head;
    head.initiator_qpn = own.qpn;
    head.request = head_of(wr, bytes);
    head.request.key = datagram_key(wr, own);
    head.address = datagram_address_of(ah);
    std::array<iovec, kMaxSge + 1> pieces{};
    pieces[0] = {&head, sizeof(head)};
    for (int i = 0; i < wr.num_sge; ++i) {
      pieces[static_cast<std::size_t>(i) + 1] = {reinterpret_cast<void*>(wr.sg_list[i].addr), wr.sg_list[i].length};
    }
    verbs::SocketAddress to = verbs::socket_address_of(group, kGroupPort, 0);
    msghdr message{};
    message.msg_name = to.get();
    message.msg_namelen = to.length;
    message.msg_iov = pieces.data();
    message.msg_iovlen = static_cast<std::size_t>(wr.num_sge) + 1;
    const int hops = std::max<int>(1, ah.attributes.grh.hop_limit);
    const bool is_ipv4 = verbs::is_mapped_ipv4(group);
    (void)(is_ipv4 ? set(fd, IPPROTO_IP, IP_MULTICAST_TTL, hops) : set(fd, IPPROTO_IPV6, IPV6_MULTICAST_HOPS, hops));
    (void)sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  } catch (const std::bad_alloc&) {  // the datagram is lost
  }
}

}  // namespace rdmacomm::softdev
