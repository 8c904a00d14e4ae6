// qp_address.h - the data that a peer needs to connect to a queue pair.
// Layer: verbs. Uses: base.   Wire form: docs/wire_format.md "QpAddress"
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "rdmacomm/result.h"

namespace rdmacomm {

/// The wire protocol of the queue pairs of a device. Queue pairs of different transports cannot be connected.
enum class Transport : std::uint8_t {
  kUnknown = 0,     ///< another protocol, or not known
  kInfiniBand = 1,  ///< InfiniBand's transport over InfiniBand links
  kRoce = 2,        ///< RoCE v1 and v2: InfiniBand's transport over Ethernet
  kIwarp = 3,       ///< RDMA over TCP: only rdma_cm can connect it
  kSoftware = 4,    ///< soft0
};
/// "InfiniBand", "RoCE", "iWARP", "software device"; "transport N" for anything else.
[[nodiscard]] RDMACOMM_API std::string to_text(Transport transport);

/// A global identifier, the address of a port, in network byte order: an IPv6 address, or an IPv4 address in the form
/// "::ffff:10.0.0.1". All zeroes: none. A value.
struct RDMACOMM_API Gid {
  std::array<std::uint8_t, 16> raw{};  ///< the bytes of the address, the first one first

  /// Whether all 16 bytes are equal.
  bool operator==(const Gid&) const = default;
  [[nodiscard]] std::string to_text() const;  ///< "::ffff:10.0.0.1", "fe80::1"
};

/// One end of a connection: queue pair, port and limits. A value.
struct RDMACOMM_API QpAddress {
  /// The number of bytes that encode() returns.
  static constexpr std::size_t kWireBytes = 40;

  std::uint32_t qpn = 0;                      ///< queue pair number, 24 bits
  std::uint32_t psn = 0;                      ///< first packet sequence number that it sends, 24 bits
  std::uint16_t lid = 0;                      ///< InfiniBand local identifier; 0 on Ethernet
  std::uint8_t link_layer = 0;                ///< IBV_LINK_LAYER_*
  std::uint8_t gid_type = 0;                  ///< ibv_gid_type of `gid`
  Gid gid{};                                  ///< all zeroes: none
  std::uint32_t mtu_bytes = 0;                ///< the largest path MTU that this end can use: 256..4096
  std::uint32_t max_read_depth = 0;           ///< READs and atomics outstanding that it accepts as the responder
  std::uint16_t pkey = 0;                     ///< P_Key of its partition; 0: none, or not known
  Transport transport = Transport::kUnknown;  ///< of its device; must be the same at both ends

  /// The bytes to send to the peer.
  [[nodiscard]] std::array<std::byte, kWireBytes> encode() const;
  /// Makes an address from bytes that were received from a peer.
  /// Returns  kBadMessage: their number is not kWireBytes, or a field is outside its range
  [[nodiscard]] static Result<QpAddress> decode(std::span<const std::byte> bytes);
  /// "QPN 0x000211 GID ::ffff:10.0.0.1 (RoCE v2) MTU 4096", for log lines and error texts.
  [[nodiscard]] std::string to_text() const;
};

}  // namespace rdmacomm
