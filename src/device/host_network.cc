#include "device/host_network.h"

#include <ifaddrs.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstddef>

#include "base/route.h"
#include "verbs/gid.h"

namespace rdmacomm {
namespace {

/// The hardware address may be longer than the array in sockaddr_ll: 20 bytes on IP over InfiniBand.
std::vector<std::uint8_t> hardware_address(const sockaddr* address) {
  const auto& packet = *reinterpret_cast<const sockaddr_ll*>(address);
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(address) + offsetof(sockaddr_ll, sll_addr);
  return {bytes, bytes + packet.sll_halen};
}

NetworkInterface& entry_of(const ifaddrs& one, std::vector<NetworkInterface>& found) {
  // An IPv4 address carries its label as the name, for example eth0:1, so interfaces are identified by their index.
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
      case AF_INET6: interface.addresses.push_back(verbs::from_ibv(verbs::gid_of(*one->ifa_addr))); break;
      default: break;
    }
  }
  freeifaddrs(list);
  return found;
}

constexpr std::uint16_t kAnyPort = 9;  // "discard"; nothing is sent

std::optional<Gid> source_of_route(const Gid& peer, std::uint32_t scope) {
  const verbs::SocketAddress to = verbs::socket_address_of(peer, kAnyPort, scope);
  const auto source = source_towards(to.get(), to.length);
  if (!source) return {};
  return verbs::from_ibv(verbs::gid_of(reinterpret_cast<const sockaddr&>(*source)));
}

constexpr HostNetwork kSystem = {.interfaces = interfaces, .source_towards = source_of_route};

}  // namespace

const HostNetwork& HostNetwork::system() noexcept {
  return kSystem;
}

std::optional<PeerRoute> find_route(const HostNetwork& network, const Gid& peer, std::uint32_t scope,
                                    const std::string& name) {
  const auto source = network.source_towards(peer, scope);
  if (!source) return {};
  return PeerRoute{.source = *source, .peer = name, .interface = scope};
}

}  // namespace rdmacomm
