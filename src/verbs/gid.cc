#include "verbs/gid.h"

#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace rdmacomm::verbs {
namespace {

constexpr std::size_t kSubnetPrefixBytes = 8;

bool is_link_local(const ibv_gid& gid) {
  if (is_mapped_ipv4(gid)) return gid.raw[12] == 169 && gid.raw[13] == 254;
  return gid.raw[0] == 0xfe && (gid.raw[1] & 0xc0) == 0x80;
}

bool is_loopback(const ibv_gid& gid) {
  if (is_mapped_ipv4(gid)) return gid.raw[12] == 127;
  return std::all_of(gid.raw, gid.raw + 15, [](std::uint8_t byte) { return byte == 0; }) && gid.raw[15] == 1;
}

}  // namespace

ibv_gid to_ibv(const Gid& gid) noexcept {
  ibv_gid same;
  std::memcpy(same.raw, gid.raw.data(), gid.raw.size());
  return same;
}

Gid from_ibv(const ibv_gid& gid) noexcept {
  Gid same;
  std::memcpy(same.raw.data(), gid.raw, same.raw.size());
  return same;
}

ibv_gid gid_of(const sockaddr& address) noexcept {
  ibv_gid gid{};
  if (address.sa_family == AF_INET) {
    gid.raw[10] = gid.raw[11] = 0xff;
    std::memcpy(gid.raw + 12, &reinterpret_cast<const sockaddr_in&>(address).sin_addr, sizeof(in_addr));
  } else if (address.sa_family == AF_INET6) {
    std::memcpy(gid.raw, &reinterpret_cast<const sockaddr_in6&>(address).sin6_addr, sizeof(gid.raw));
  }
  return gid;
}

SocketAddress socket_address_of(const ibv_gid& gid, std::uint16_t port, std::uint32_t interface) noexcept {
  SocketAddress address;
  if (is_mapped_ipv4(gid)) {
    auto& ipv4 = reinterpret_cast<sockaddr_in&>(address.storage);
    ipv4.sin_family = AF_INET;
    ipv4.sin_port = htons(port);
    std::memcpy(&ipv4.sin_addr, gid.raw + 12, sizeof(ipv4.sin_addr));
    address.length = sizeof(ipv4);
  } else {
    auto& ipv6 = reinterpret_cast<sockaddr_in6&>(address.storage);
    ipv6.sin6_family = AF_INET6;
    ipv6.sin6_port = htons(port);
    if (is_link_local(gid)) ipv6.sin6_scope_id = interface;
    std::memcpy(&ipv6.sin6_addr, gid.raw, sizeof(ipv6.sin6_addr));
    address.length = sizeof(ipv6);
  }
  return address;
}

bool equal(const ibv_gid& a, const ibv_gid& b) noexcept {
  return std::memcmp(a.raw, b.raw, sizeof(a.raw)) == 0;
}

bool is_empty(const ibv_gid& gid) noexcept {
  return std::ranges::all_of(gid.raw, [](std::uint8_t byte) { return byte == 0; });
}

bool is_mapped_ipv4(const ibv_gid& gid) noexcept {
  constexpr std::array<std::uint8_t, 12> kPrefix = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  return std::equal(kPrefix.begin(), kPrefix.end(), gid.raw);
}

Reach reach_of(const ibv_gid& gid) noexcept {
  if (is_loopback(gid)) return Reach::kHost;
  return is_link_local(gid) ? Reach::kLink : Reach::kRoutable;
}

bool same_subnet(const ibv_gid& a, const ibv_gid& b) noexcept {
  return std::memcmp(a.raw, b.raw, kSubnetPrefixBytes) == 0;
}

}  // namespace rdmacomm::verbs
