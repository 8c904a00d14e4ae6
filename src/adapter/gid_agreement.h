// gid_agreement.h - by which GIDs two ends are connected.
// Layer: adapter. Uses: base, verbs.   Wire form of OfferedGid: docs/wire_format.md "EndPointCard"
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

/// A GID by which an end can be reached. A value that travels in the handshake: 17 bytes.
struct OfferedGid {
  static constexpr std::size_t kWireBytes = 17;

  std::uint8_t type = 0;  ///< ibv_gid_type
  Gid gid{};

  void encode(WireWriter& writer) const;
  /// Takes the wire form off `reader`. kBadMessage: truncated, or all zeroes.
  [[nodiscard]] static Result<OfferedGid> decode(WireReader& reader);
  [[nodiscard]] std::string to_text() const;  ///< "RoCE v2 ::ffff:10.0.0.1"
};

/// The GIDs of one end, the best first. A value.
struct GidOffer {
  Transport transport = Transport::kUnknown;
  std::vector<OfferedGid> gids{};
};

/// One GID of each end, by their positions in the offers. A value.
struct GidPair {
  std::size_t ours = 0;
  std::size_t theirs = 0;
};

/// The first pair that can work, in the order of `theirs` (who asks knows best where it comes from), then of `ours`.
/// Two GIDs work together if they have one type and, but for InfiniBand, one IP version and one reach (routable,
/// link-local, this host). On InfiniBand a pair of one subnet goes before a pair of two.
///
/// Returns  kIncompatiblePeer: other transports, or no such pair; the context has what each side offers
[[nodiscard]] Result<GidPair> agree_on_gids(const GidOffer& ours, const GidOffer& theirs);

/// A warning for two ends that are connected without rdma_cm and are on two InfiniBand subnets: packets go to a
/// router's LID then, which only the subnet manager knows. Empty: nothing to warn of.
[[nodiscard]] std::string router_warning(Transport transport, const Gid& ours, const Gid& theirs);

}  // namespace rdmacomm
