#include "softdev/host/soft_ah.h"

#include <endian.h>
#include <netinet/in.h>
#include <netinet/ip.h>

#include <algorithm>
#include <cstring>

#include "verbs/gid.h"

namespace rdmacomm::softdev {
namespace {

// The headers and trailer around a datagram's payload. Source: InfiniBand specification, volume 1, section 5.2 and
// annex A17.
constexpr std::uint32_t kTransportHeaders = 12 + 8;  // BTH, DETH
constexpr std::uint32_t kUdpHeader = 8;
constexpr std::uint32_t kIcrc = 4;
constexpr std::uint8_t kNextIsTransport = 0x1b;
constexpr std::size_t kIpv4Offset = sizeof(ibv_grh) - sizeof(iphdr);

/// The Internet checksum. The result is 0 if the header already has the right checksum.
std::uint16_t checksum(const iphdr& header) noexcept {
  std::array<std::uint16_t, sizeof(iphdr) / 2> words{};
  std::memcpy(words.data(), &header, sizeof(header));
  std::uint32_t sum = 0;
  for (const std::uint16_t word : words) sum += word;
  sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<std::uint16_t>(~(sum + (sum >> 16)));
}

iphdr ipv4_header(const ibv_global_route& route, const ibv_gid& source, std::uint32_t bytes) noexcept {
  iphdr header{};
  header.version = 4;
  header.ihl = sizeof(header) / 4;
  header.tos = route.traffic_class;
  header.tot_len = htobe16(static_cast<std::uint16_t>(sizeof(header) + bytes));
  header.frag_off = htobe16(IP_DF);
  header.ttl = route.hop_limit;
  header.protocol = IPPROTO_UDP;
  std::memcpy(&header.saddr, source.raw + 12, sizeof(header.saddr));
  std::memcpy(&header.daddr, route.dgid.raw + 12, sizeof(header.daddr));
  header.check = checksum(header);
  return header;
}

}  // namespace

std::uint8_t SoftAh::received_service_level() const noexcept {
  // Source: the comments on completions of datagrams in UCX 1.13, src/uct/ib/ud/base/ud_iface.h.
  constexpr std::uint8_t kUdp = 8;
  constexpr std::uint8_t kIpv6 = 1;
  constexpr std::uint8_t kIpv4 = 2;
  if (source_lid != 0) return attributes.sl;
  if (!is_routable) return 0;
  return verbs::is_mapped_ipv4(source) ? kUdp | kIpv4 : kUdp | kIpv6;
}

DatagramHeader SoftAh::header(std::uint32_t bytes) const noexcept {
  DatagramHeader header{};
  if (attributes.is_global == 0) return header;
  const std::uint32_t padded = (bytes + 3) / 4 * 4;
  const std::uint32_t behind = kTransportHeaders + padded + kIcrc + (is_routable ? kUdpHeader : 0);
  if (is_routable && verbs::is_mapped_ipv4(source)) {
    const iphdr ipv4 = ipv4_header(attributes.grh, source, behind);
    std::memcpy(header.data() + kIpv4Offset, &ipv4, sizeof(ipv4));
    return header;
  }
  ibv_grh grh{};
  grh.version_tclass_flow =
      htobe32(6U << 28 | std::uint32_t{attributes.grh.traffic_class} << 20 | (attributes.grh.flow_label & 0xfffff));
  grh.paylen = htobe16(static_cast<std::uint16_t>(behind));
  grh.next_hdr = is_routable ? static_cast<std::uint8_t>(IPPROTO_UDP) : kNextIsTransport;
  grh.hop_limit = attributes.grh.hop_limit;
  grh.sgid = source;
  grh.dgid = attributes.grh.dgid;
  std::memcpy(header.data(), &grh, sizeof(grh));
  return header;
}

HeaderAddresses read_header(const ibv_grh& header) noexcept {
  iphdr ipv4{};
  std::memcpy(&ipv4, reinterpret_cast<const std::byte*>(&header) + kIpv4Offset, sizeof(ipv4));
  const std::uint32_t first = be32toh(header.version_tclass_flow);
  // The last bytes of a global routing header may look like an IPv4 header, but such a header begins with version 6.
  if (first >> 28 != 6 && ipv4.version == 4 && checksum(ipv4) == 0) {
    const auto gid = [](std::uint32_t address) {
      const sockaddr_in with_family{AF_INET, 0, in_addr{address}, {}};
      return verbs::gid_of(reinterpret_cast<const sockaddr&>(with_family));
    };
    return {gid(ipv4.saddr), gid(ipv4.daddr), true, ipv4.ttl, ipv4.tos, 0};
  }
  return {header.sgid,
          header.dgid,
          header.next_hdr == IPPROTO_UDP,
          header.hop_limit,
          static_cast<std::uint8_t>(first >> 20),
          first & 0xfffff};
}

}  // namespace rdmacomm::softdev
