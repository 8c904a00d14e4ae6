#include "connector/source_network.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>

namespace rdmacomm {
namespace {

constexpr std::size_t kNetworkBytes = 8;

}  // namespace

SourceNetwork SourceNetwork::of(std::string_view peer) {
  peer = peer.substr(0, peer.find(' '));
  std::string host(peer.substr(0, peer.rfind(':')));
  if (host.starts_with('[')) host = host.substr(1, host.find(']') - 1);
  const std::size_t percent = std::min(host.find('%'), host.size());
  const std::string address = host.substr(0, percent);
  SourceNetwork source{.bytes = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff}};
  if (inet_pton(AF_INET, address.c_str(), source.bytes.data() + 12) == 1) return source;
  in6_addr ipv6{};
  if (inet_pton(AF_INET6, address.c_str(), &ipv6) != 1) return {};
  std::memcpy(source.bytes.data(), &ipv6, sizeof(ipv6));
  if (IN6_IS_ADDR_LINKLOCAL(&ipv6)) {
    source.link = host.substr(std::min(percent + 1, host.size()));
  } else if (!IN6_IS_ADDR_V4MAPPED(&ipv6) && !IN6_IS_ADDR_LOOPBACK(&ipv6)) {
    std::fill(source.bytes.begin() + kNetworkBytes, source.bytes.end(), std::uint8_t{0});
  }
  return source;
}

std::string SourceNetwork::to_text() const {
  in6_addr ipv6{};
  std::memcpy(&ipv6, bytes.data(), sizeof(ipv6));
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (IN6_IS_ADDR_V4MAPPED(&ipv6)) return inet_ntop(AF_INET, bytes.data() + 12, text.data(), text.size());
  const std::string address = inet_ntop(AF_INET6, &ipv6, text.data(), text.size());
  return link.empty() ? address : address + "%" + link;
}

}  // namespace rdmacomm
