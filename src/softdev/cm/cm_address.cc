#include "softdev/cm/cm_address.h"

#include <endian.h>
#include <netinet/in.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/unique_fd.h"
#include "softdev/common/fnv1a.h"
#include "verbs/gid.h"

namespace rdmacomm::softdev {
namespace {

// The service id of a port: the port space in bits 16 to 31, the port below. Source: Annex A11 of the InfiniBand
// specification.
constexpr std::uint64_t kPortMask = 0xffff;
constexpr unsigned kPortSpaceShift = 16;

template <typename Address>
bool copy_from(const void* from, std::size_t length, Address& address) noexcept {
  if (length < sizeof(address)) return false;
  std::memcpy(&address, from, sizeof(address));
  return true;
}

bool is_any_ipv4(const ibv_gid& gid) noexcept {
  return verbs::is_mapped_ipv4(gid) && std::all_of(gid.raw + 12, gid.raw + 16, [](auto byte) { return byte == 0; });
}

}  // namespace

bool CmAddress::is_any() const noexcept {
  return verbs::is_empty(gid) || is_any_ipv4(gid);
}

std::size_t length_of(sa_family_t family) noexcept {
  switch (family) {
    case AF_INET: return sizeof(sockaddr_in);
    case AF_INET6: return sizeof(sockaddr_in6);
    case AF_IB: return sizeof(IbSocketAddress);
    default: return 0;
  }
}

bool read_address(const void* from, std::size_t length, CmAddress& address) noexcept {
  address = {};
  if (!copy_from(from, length, address.family)) return false;
  if (address.family == AF_INET) {
    sockaddr_in ipv4{};
    if (!copy_from(from, length, ipv4)) return false;
    address.gid = verbs::gid_of(reinterpret_cast<const sockaddr&>(ipv4));
    address.port = ntohs(ipv4.sin_port);
  } else if (address.family == AF_INET6) {
    sockaddr_in6 ipv6{};
    if (!copy_from(from, length, ipv6)) return false;
    address.gid = verbs::gid_of(reinterpret_cast<const sockaddr&>(ipv6));
    address.port = ntohs(ipv6.sin6_port);
    address.interface = ipv6.sin6_scope_id;
  } else if (address.family == AF_IB) {
    IbSocketAddress ib;
    if (!copy_from(from, length, ib)) return false;
    const std::uint64_t service = be64toh(ib.service_id) & be64toh(ib.service_mask);
    address.gid = ib.gid;
    address.port = static_cast<std::uint16_t>(service & kPortMask);
    address.port_space = static_cast<std::uint16_t>(service >> kPortSpaceShift);
  } else {
    return false;
  }
  return true;
}

std::size_t write_address(const CmAddress& address, std::uint16_t port_space, sockaddr_storage& to) noexcept {
  to = {};
  if (address.family == AF_IB) {
    IbSocketAddress ib;
    ib.family = AF_IB;
    ib.pkey = htobe16(0xffff);
    ib.gid = address.gid;
    ib.service_id = htobe64(std::uint64_t{port_space} << kPortSpaceShift | address.port);
    ib.service_mask = ~std::uint64_t{0};
    std::memcpy(&to, &ib, sizeof(ib));
  } else if (address.family == AF_INET) {
    sockaddr_in ipv4{};
    ipv4.sin_family = AF_INET;
    ipv4.sin_port = htons(address.port);
    std::memcpy(&ipv4.sin_addr, address.gid.raw + 12, sizeof(ipv4.sin_addr));
    std::memcpy(&to, &ipv4, sizeof(ipv4));
  } else if (address.family == AF_INET6) {
    sockaddr_in6 ipv6{};
    ipv6.sin6_family = AF_INET6;
    ipv6.sin6_port = htons(address.port);
    ipv6.sin6_scope_id = address.interface;
    std::memcpy(&ipv6.sin6_addr, address.gid.raw, sizeof(ipv6.sin6_addr));
    std::memcpy(&to, &ipv6, sizeof(ipv6));
  }
  return length_of(address.family);
}

ibv_gid infiniband_group(const CmAddress& group, bool for_udp) noexcept {
  const std::uint8_t* const address = group.gid.raw;
  // A group of connection management: 0xff, flags and scope, and this signature.
  const bool is_mapped = address[0] == 0xff && address[1] >> 4 == 1 && address[2] == 0xa0 && address[3] == 0x1b;
  if (group.family == AF_IB || (group.family == AF_INET6 && is_mapped)) return group.gid;
  constexpr std::uint8_t kLinkLocal = 0x12;
  ibv_gid mapped{};
  mapped.raw[0] = 0xff;
  mapped.raw[1] = kLinkLocal;
  mapped.raw[2] = group.family == AF_INET ? 0x40 : 0x60;
  mapped.raw[3] = for_udp ? 0x01 : 0x1b;
  mapped.raw[4] = kDefaultPkey >> 8;
  mapped.raw[5] = kDefaultPkey & 0xff;
  if (group.family == AF_INET) {
    mapped.raw[12] = address[12] & 0x0f;
    std::copy_n(address + 13, 3, mapped.raw + 13);
  } else {
    std::copy_n(address + 6, 10, mapped.raw + 6);
  }
  return mapped;
}

std::uint16_t lid_of_group(const ibv_gid& group) noexcept {
  constexpr std::uint16_t kFirst = 0xc000;
  constexpr std::uint16_t kCount = 0xffff - kFirst;
  Fnv1a hash;
  hash.add(group.raw, sizeof(group.raw));
  return static_cast<std::uint16_t>(kFirst + hash.value() % kCount);
}

int source_for(const CmAddress& target, CmAddress& source) {
  // Connecting a datagram socket sends nothing, but selects a route.
  sockaddr_storage to{};
  CmAddress with_port = target;
  if (with_port.port == 0) with_port.port = 1;
  const std::size_t length = write_address(with_port, 0, to);
  const UniqueFd socket(::socket(target.family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket) return errno;
  if (connect(socket.get(), reinterpret_cast<const sockaddr*>(&to), static_cast<socklen_t>(length)) != 0) return errno;
  sockaddr_storage from{};
  socklen_t room = sizeof(from);
  if (getsockname(socket.get(), reinterpret_cast<sockaddr*>(&from), &room) != 0) return errno;
  const std::uint16_t port = source.port;
  if (!read_address(&from, room, source)) return EAFNOSUPPORT;
  source.port = port;
  if (source.interface == 0) source.interface = target.interface;
  return 0;
}

}  // namespace rdmacomm::softdev
