// cm_address.h - the addresses that connection management takes from programs.
#pragma once

#include <infiniband/verbs.h>
#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace rdmacomm::softdev {

/// The only P_Key of the device: full member of the default partition.
inline constexpr std::uint16_t kDefaultPkey = 0xffff;

/// AF_IB's form of an address. Source: struct sockaddr_ib of Linux's include/rdma/ib.h.
struct IbSocketAddress {
  std::uint16_t family = 0;
  std::uint16_t pkey = 0;       ///< big-endian
  std::uint32_t flow_info = 0;  ///< big-endian
  ibv_gid gid{};
  std::uint64_t service_id = 0;    ///< big-endian
  std::uint64_t service_mask = 0;  ///< big-endian
  std::uint64_t scope_id = 0;
};
static_assert(sizeof(IbSocketAddress) == 48);

/// An address and a port of connection management.
struct CmAddress {
  sa_family_t family = AF_UNSPEC;  ///< AF_INET, AF_INET6 or AF_IB; AF_UNSPEC: no address is known
  ibv_gid gid{};                   ///< IPv4 in its mapped form; all zeroes: any address
  std::uint16_t port = 0;          ///< in host byte order; 0: any port
  std::uint32_t interface = 0;     ///< for link-local IPv6 addresses: the index of the interface
  std::uint16_t port_space = 0;    ///< AF_IB: the port space that its service id names; 0: none

  [[nodiscard]] bool is_any() const noexcept;
};

/// Reads an address of `length` bytes at `from`. Returns false: another family, or too short.
[[nodiscard]] bool read_address(const void* from, std::size_t length, CmAddress& address) noexcept;
/// The reverse. Returns the number of bytes; 0 for AF_UNSPEC.
/// port_space  for AF_IB: goes into the service id
std::size_t write_address(const CmAddress& address, std::uint16_t port_space, sockaddr_storage& to) noexcept;
/// The length of an address of this family; 0: not supported.
[[nodiscard]] std::size_t length_of(sa_family_t family) noexcept;

/// The multicast group of an IP group on an InfiniBand device with the default P_Key. A group that is no IP group keeps
/// its address.
/// for_udp  the group is joined for RDMA_PS_UDP. So its members are no members of the IP over InfiniBand group.
/// Source: RFC 4391, section 4; cma_set_mgid() in Linux's drivers/infiniband/core/cma.c.
[[nodiscard]] ibv_gid infiniband_group(const CmAddress& group, bool for_udp) noexcept;
/// The local identifier that stands for an InfiniBand group: 0xc000 to 0xfffe.
[[nodiscard]] std::uint16_t lid_of_group(const ibv_gid& group) noexcept;

/// The address from which the kernel would send to `target`, as its routes and the addresses of its interfaces say.
/// Returns  0, or an errno value: ENETUNREACH, EHOSTUNREACH: no route.
[[nodiscard]] int source_for(const CmAddress& target, CmAddress& source);

}  // namespace rdmacomm::softdev
