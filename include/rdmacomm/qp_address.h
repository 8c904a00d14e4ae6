// qp_address.h - what a peer must know of a queue pair to connect to it.
// Layer: verbs. Uses: base.   Wire form: docs/wire_format.md "QpAddress"
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "rdmacomm/result.h"

namespace rdmacomm {

/// What the queue pairs of a device speak on the wire. Queue pairs of different transports cannot be connected.
enum class Transport : std::uint8_t {
  kUnknown = 0,
  kInfiniBand = 1,
  kRoce = 2,      ///< RoCE v1 and v2: InfiniBand's transport over Ethernet
  kIwarp = 3,     ///< RDMA over TCP: only rdma_cm makes its connections
  kSoftware = 4,  ///< soft0
};
/// "InfiniBand", "RoCE", "iWARP", "software device"; "transport N" for anything else.
[[nodiscard]] RDMACOMM_API std::string to_text(Transport transport);

/// A global identifier, the address of a port, in network byte order: an IPv6 address, or an IPv4 address as
/// ::ffff:a.b.c.d. All zeroes: none. A value.
struct RDMACOMM_API Gid {
  std::array<std::uint8_t, 16> raw{};

  bool operator==(const Gid&) const = default;
  [[nodiscard]] std::string to_text() const;  ///< "::ffff:10.0.0.1", "fe80::1"
};

/// One end of a connection: queue pair, port and limits. A value.
struct RDMACOMM_API QpAddress {
  static constexpr std::size_t kWireBytes = 40;

  std::uint32_t qpn = 0;             ///< queue pair number, 24 bits
  std::uint32_t psn = 0;             ///< first packet sequence number that it will send, 24 bits
  std::uint16_t lid = 0;             ///< InfiniBand local identifier; 0 on Ethernet
  std::uint8_t link_layer = 0;       ///< IBV_LINK_LAYER_*
  std::uint8_t gid_type = 0;         ///< ibv_gid_type of `gid`
  Gid gid{};                         ///< all zeroes: it has none
  std::uint32_t mtu_bytes = 0;       ///< the largest path MTU that this end can use: 256..4096
  std::uint32_t max_read_depth = 0;  ///< READs and atomics that it accepts at a time as the responder
  std::uint16_t pkey = 0;            ///< P_Key of its partition; 0: the device has none, or does not say
  Transport transport = Transport::kUnknown;

  /// The bytes to send to the peer.
  [[nodiscard]] std::array<std::byte, kWireBytes> encode() const;
  /// Makes an address of bytes that have come from a peer.
  /// Returns  kBadMessage: not kWireBytes of them, or a field is outside its range
  [[nodiscard]] static Result<QpAddress> decode(std::span<const std::byte> bytes);
  /// "QPN 0x000211 GID ::ffff:10.0.0.1 (RoCE v2) MTU 4096", for messages.
  [[nodiscard]] std::string to_text() const;
};

}  // namespace rdmacomm
