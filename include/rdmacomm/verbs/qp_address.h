// qp_address.h - what a peer must know of a queue pair to connect to it.
// Layer: verbs. Uses: base.   Wire form: docs/wire_format.md "QpAddress"
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "rdmacomm/base/result.h"
#include "rdmacomm/base/wire.h"
#include "rdmacomm/verbs/transport.h"

namespace rdmacomm::verbs {

/// One end of a connection: queue pair, port and limits. A value that travels in the handshake.
struct QpAddress {
  static constexpr std::size_t kWireBytes = 40;

  std::uint32_t qpn = 0;             ///< queue pair number, 24 bits
  std::uint32_t psn = 0;             ///< first packet sequence number it will send, 24 bits
  std::uint16_t lid = 0;             ///< InfiniBand local identifier; 0 on Ethernet
  std::uint8_t link_layer = 0;       ///< IBV_LINK_LAYER_*
  std::uint8_t gid_type = 0;         ///< ibv_gid_type of `gid`
  ibv_gid gid{};                     ///< all zeroes: has none
  std::uint32_t mtu_bytes = 0;       ///< the largest path MTU this end can do: 256..4096
  std::uint32_t max_read_depth = 0;  ///< READs and atomics it accepts at a time as the responder
  std::uint16_t pkey = 0;            ///< P_Key of its partition; 0: the device has none, or does not say
  Transport transport = Transport::kUnknown;

  /// Appends the wire form: kWireBytes.
  void encode(WireWriter& writer) const;
  /// Takes the wire form off `reader`. kBadMessage: truncated, or a field outside its range.
  [[nodiscard]] static Result<QpAddress> decode(WireReader& reader);
  /// "QPN 0x000211 GID ::ffff:10.0.0.1 (RoCE v2) MTU 4096", for messages.
  [[nodiscard]] std::string to_text() const;
};

}  // namespace rdmacomm::verbs
