#include "adapter/gid_agreement.h"

#include <algorithm>
#include <optional>

#include "verbs/describe.h"
#include "verbs/gid.h"

namespace rdmacomm {
namespace {

bool can_work(const OfferedGid& a, const OfferedGid& b) {
  if (a.type != b.type) return false;
  if (a.type == IBV_GID_TYPE_IB) return true;
  return verbs::is_mapped_ipv4(a.gid) == verbs::is_mapped_ipv4(b.gid) &&
         verbs::reach_of(a.gid) == verbs::reach_of(b.gid);
}

template <typename Works>
std::optional<GidPair> first_pair(const GidOffer& ours, const GidOffer& theirs, Works works) {
  for (std::size_t i = 0; i < theirs.gids.size(); ++i) {
    const auto found = std::ranges::find_if(ours.gids, [&](const auto& own) { return works(own, theirs.gids[i]); });
    if (found != ours.gids.end()) return GidPair{static_cast<std::size_t>(found - ours.gids.begin()), i};
  }
  return {};
}

std::string text_of(const GidOffer& offer) {
  std::string text;
  for (const OfferedGid& each : offer.gids) text += (text.empty() ? "" : ", ") + each.to_text();
  return offer.gids.empty() ? "none" : text;
}

}  // namespace

void OfferedGid::encode(WireWriter& writer) const {
  writer.put(type);
  writer.put_bytes(std::as_bytes(std::span(gid.raw)));
}

Result<OfferedGid> OfferedGid::decode(WireReader& reader) {
  OfferedGid offered;
  offered.type = reader.get<std::uint8_t>();
  std::ranges::copy(reader.take(offered.gid.raw.size()), reinterpret_cast<std::byte*>(offered.gid.raw.data()));
  if (!reader.ok()) return make_error(Errc::kBadMessage, "a GID is incomplete");
  if (verbs::is_empty(offered.gid)) return make_error(Errc::kBadMessage, "a GID is all zeroes");
  return offered;
}

std::string OfferedGid::to_text() const {
  return verbs::gid_type_text(type) + " " + gid.to_text();
}

Result<GidPair> agree_on_gids(const GidOffer& ours, const GidOffer& theirs) {
  if (ours.transport != theirs.transport) {
    return make_error(Errc::kIncompatiblePeer, "the endpoints have different transports; local: " +
                                                   to_text(ours.transport) + "; peer: " + to_text(theirs.transport) +
                                                   ": choose devices of one kind (DeviceOptions::name)");
  }
  auto pair = first_pair(ours, theirs, [](const OfferedGid& a, const OfferedGid& b) {
    return can_work(a, b) && verbs::same_subnet(a.gid, b.gid);
  });
  const bool subnets_matter = ours.transport == Transport::kInfiniBand;
  if (!pair || !subnets_matter) pair = first_pair(ours, theirs, can_work);
  if (pair) return *pair;
  return make_error(Errc::kIncompatiblePeer,
                    "no local GID works with a GID of the peer; local: " + text_of(ours) +
                        "; peer: " + text_of(theirs) +
                        ": both GIDs of a connection must have the same type, the same IP version and the same scope "
                        "(DeviceOptions::gid_type, DeviceOptions::gid_index)");
}

std::string router_warning(Transport transport, const Gid& ours, const Gid& theirs) {
  if (transport != Transport::kInfiniBand || verbs::same_subnet(ours, theirs)) return {};
  return "the local GID " + ours.to_text() + " and the peer's GID " + theirs.to_text() +
         " are on different InfiniBand subnets, and only the subnet manager knows the router between them: expect "
         "kRetryExceeded, or connect by rdma_cm, which asks the subnet manager (ConnectorKind::kCm)";
}

}  // namespace rdmacomm
