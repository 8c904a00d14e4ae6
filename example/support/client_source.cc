#include "support/client_source.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <cstdint>

namespace rdmacomm::programs {

std::string client_source(std::string_view peer) {
  peer = peer.substr(0, peer.find(' '));
  peer = peer.substr(0, peer.rfind(':'));
  if (!peer.starts_with('[')) return std::string(peer);
  peer.remove_prefix(1);
  const std::string host(peer.substr(0, peer.find_first_of("%]")));
  in6_addr address{};
  if (::inet_pton(AF_INET6, host.c_str(), &address) != 1) return host;
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (IN6_IS_ADDR_V4MAPPED(&address)) {
    return ::inet_ntop(AF_INET, &address.s6_addr[12], text.data(), text.size());
  }
  if (!IN6_IS_ADDR_LINKLOCAL(&address) && !IN6_IS_ADDR_LOOPBACK(&address))
    std::fill_n(&address.s6_addr[8], 8, std::uint8_t{0});
  return ::inet_ntop(AF_INET6, &address, text.data(), text.size());
}

}  // namespace rdmacomm::programs
