// gid_agreement.h - which GIDs two peers use to connect.
// Layer: adapter. Uses: base, verbs.   Wire form of OfferedGid: docs/wire_format.md "EndPointDescription"
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/wire.h"
#include "rdmacomm/qp_address.h"
#include "rdmacomm/result.h"

namespace rdmacomm {

/// A GID by which a peer can be reached. A value that is sent in the handshake: 17 bytes.
struct OfferedGid {
  static constexpr std::size_t kWireBytes = 17;

  std::uint8_t type = 0;  ///< ibv_gid_type
  Gid gid{};

  void encode(WireWriter& writer) const;
  /// Reads the wire form from `reader`. kBadMessage: truncated, or all zeroes.
  [[nodiscard]] static Result<OfferedGid> decode(WireReader& reader);
  [[nodiscard]] std::string to_text() const;  ///< "RoCE v2 ::ffff:10.0.0.1"
};

/// The GIDs of one peer, best first. A value.
struct GidOffer {
  Transport transport = Transport::kUnknown;
  std::vector<OfferedGid> gids{};
};

/// One GID of each peer, by their positions in the offers. A value.
struct GidPair {
  std::size_t ours = 0;
  std::size_t theirs = 0;
};

/// The first pair that can work, in the order of `theirs` and then of `ours`: the peer that asks knows best which of
/// its GIDs fit. Two GIDs work together if they have the same type, the same IP version and the same reach (routable,
/// link-local, this host). On InfiniBand only the type must be equal, and a pair in one subnet is preferred to a pair
/// in two.
///
/// Returns  kIncompatiblePeer: different transports, or no such pair; the context has both offers
[[nodiscard]] Result<GidPair> agree_on_gids(const GidOffer& ours, const GidOffer& theirs);

/// A warning for two peers that connect without rdma_cm and are on two InfiniBand subnets: packets must then be sent to
/// a router's LID, which only the subnet manager knows. Empty: no warning.
[[nodiscard]] std::string router_warning(Transport transport, const Gid& ours, const Gid& theirs);

}  // namespace rdmacomm
