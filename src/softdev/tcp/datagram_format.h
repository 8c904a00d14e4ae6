// datagram_format.h - datagrams as they are sent to other hosts, over TCP or to a multicast group.
#pragma once

#include "softdev/host/soft_ah.h"
#include "softdev/tcp/tcp_protocol.h"

namespace rdmacomm::softdev {

/// The addresses of datagrams with this address handle, and the reverse.
[[nodiscard]] TcpDatagramAddress datagram_address_of(const SoftAh& ah) noexcept;
[[nodiscard]] SoftAh handle_of(const TcpDatagramAddress& address) noexcept;
/// True if a correct peer could have sent a datagram with this request.
[[nodiscard]] bool is_datagram(const TcpRequest& request) noexcept;

/// A datagram to a multicast group: one UDP datagram to port kGroupPort of the IP address that the group's GID is. The
/// payload follows this struct. All fields are little-endian, except GIDs.
struct GroupDatagram {
  std::uint32_t magic = kTcpMagic;
  std::uint16_t version = kTcpVersion;
  std::uint16_t reserved = 0;
  std::uint32_t initiator_qpn = 0;
  std::uint32_t reserved_too = 0;
  TcpRequest request;
  TcpDatagramAddress address;
};
static_assert(sizeof(GroupDatagram) == 120);

/// The UDP port of all groups. It has the number of the TCP port of queue pair 1.
inline constexpr std::uint16_t kGroupPort = tcp_port_of(1);

}  // namespace rdmacomm::softdev
