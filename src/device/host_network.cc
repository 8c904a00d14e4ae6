#include "rdmacomm/device/host_network.h"

#include <ifaddrs.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>

#include "base/route.h"
#include "rdmacomm/verbs/gid.h"

namespace rdmacomm {
namespace {

/// The hardware address may be longer than sockaddr_ll has room for: 20 bytes on IP over InfiniBand.
std::vector<std::uint8_t> hardware_address(const sockaddr* address) {
  const auto& packet = *reinterpret_cast<const sockaddr_ll*>(address);
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(address) + offsetof(sockaddr_ll, sll_addr);
  return {bytes, bytes + packet.sll_halen};
}

NetworkInterface& entry_of(const ifaddrs& one, std::vector<NetworkInterface>& found) {
  // The name of an IPv4 address is its label, for example eth0:1: the index is what interfaces are told apart by.
  const unsigned index = if_nametoindex(one.ifa_name);
  const auto known = std::ranges::find(found, index, &NetworkInterface::index);
  if (known != found.end()) return *known;
  return found.emplace_back(NetworkInterface{.index = index, .name = one.ifa_name});
}

std::vector<NetworkInterface> interfaces() {
  std::vector<NetworkInterface> found;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return found;
  for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || (one->ifa_flags & IFF_UP) == 0) continue;
    NetworkInterface& interface = entry_of(*one, found);
    switch (one->ifa_addr->sa_family) {
      case AF_PACKET: interface.hardware_address = hardware_address(one->ifa_addr); break;
      case AF_INET:
      case AF_INET6: interface.addresses.push_back(verbs::gid_of(*one->ifa_addr)); break;
      default: break;
    }
  }
  freeifaddrs(list);
  return found;
}

struct Address {
  sockaddr_storage storage{};
  socklen_t length = 0;
  [[nodiscard]] const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

constexpr std::uint16_t kAnyPort = 9;  // "discard"; nothing is sent

Address socket_address(const ibv_gid& peer, std::uint32_t scope) {
  Address address;
  if (verbs::is_mapped_ipv4(peer)) {
    auto& ipv4 = reinterpret_cast<sockaddr_in&>(address.storage);
    ipv4.sin_family = AF_INET;
    ipv4.sin_port = htons(kAnyPort);
    std::memcpy(&ipv4.sin_addr, peer.raw + 12, sizeof(ipv4.sin_addr));
    address.length = sizeof(ipv4);
  } else {
    auto& ipv6 = reinterpret_cast<sockaddr_in6&>(address.storage);
    ipv6.sin6_family = AF_INET6;
    ipv6.sin6_port = htons(kAnyPort);
    ipv6.sin6_scope_id = scope;
    std::memcpy(&ipv6.sin6_addr, peer.raw, sizeof(ipv6.sin6_addr));
    address.length = sizeof(ipv6);
  }
  return address;
}

std::optional<ibv_gid> source_of_route(const ibv_gid& peer, std::uint32_t scope) {
  const Address to = socket_address(peer, scope);
  const auto source = source_towards(to.get(), to.length);
  if (!source) return {};
  return verbs::gid_of(reinterpret_cast<const sockaddr&>(*source));
}

constexpr HostNetwork kSystem = {.interfaces = interfaces, .source_towards = source_of_route};

}  // namespace

const HostNetwork& HostNetwork::system() noexcept {
  return kSystem;
}

std::optional<PeerRoute> find_route(const HostNetwork& network, const ibv_gid& peer, std::uint32_t scope,
                                    const std::string& name) {
  const auto source = network.source_towards(peer, scope);
  if (!source) return {};
  return PeerRoute{.source = *source, .peer = name, .interface = scope};
}

}  // namespace rdmacomm
