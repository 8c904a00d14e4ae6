// soft_ah.h - address handles: the target of a datagram, and the header that it arrives with.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "softdev/host/gid_table.h"
#include "softdev/host/route.h"

namespace rdmacomm::softdev {

/// The header before a datagram in its receive, as ibv_poll_cq(3) describes it: a global routing header. With RoCE v2
/// it is the IP header. An IPv4 header takes the last 20 bytes.
using DatagramHeader = std::array<std::byte, sizeof(ibv_grh)>;

/// An address handle. Its source and target are fixed when it is created.
struct SoftAh : ibv_ah {
  ibv_ah_attr attributes{};
  ibv_gid source{};
  std::uint16_t source_lid = 0;
  bool is_routable = false;  ///< RoCE v2
  Route route;

  [[nodiscard]] static SoftAh& from(ibv_ah* ah) noexcept { return *static_cast<SoftAh*>(ah); }
  [[nodiscard]] bool is_multicast() const noexcept {
    return attributes.is_global != 0 && softdev::is_multicast(attributes.grh.dgid);
  }
  /// The service level in the receiver's completion. On Ethernet a port has none. As on ConnectX, its completions have
  /// the kind of the header there instead: 0 for RoCE v1, 9 for IPv6, 10 for IPv4. UCX 1.13 reads it.
  [[nodiscard]] std::uint8_t received_service_level() const noexcept;
  /// The header of a datagram of `bytes`; all zero if the address is not global.
  [[nodiscard]] DatagramHeader header(std::uint32_t bytes) const noexcept;
};

/// The addresses in `header`, from which a reply can be addressed.
struct HeaderAddresses {
  ibv_gid source{};
  ibv_gid target{};
  bool is_routable = false;
  std::uint8_t hop_limit = 0;
  std::uint8_t traffic_class = 0;
  std::uint32_t flow_label = 0;
};
[[nodiscard]] HeaderAddresses read_header(const ibv_grh& header) noexcept;

}  // namespace rdmacomm::softdev
