#include "mesh_comm_service/peer.h"

namespace rdmacomm::mesh {
namespace {

std::string names(int from, int to) {
  return "node " + std::to_string(from) + " to node " + std::to_string(to);
}

Status differ(const std::string& what) {
  return make_error(std::make_error_code(std::errc::io_error), what);
}

/// Returns an error if messages differed from the sent ones, on whichever peer that was noticed.
Status check_messages(const std::string& way, const Tally& arrived) {
  if (arrived.corrupt == 0) return {};
  return differ(std::to_string(arrived.corrupt) + " of " + std::to_string(arrived.messages) + " messages from " + way +
                " differ from the sent ones: " + arrived.difference);
}

}  // namespace

void PastLives::add(const OutboundFigures& sent, const Tally& arrived_there, const Tally& received) {
  sum.messages += sent.messages;
  sum.bytes += sent.bytes;
  sum.counted_messages += arrived_there.messages;
  sum.counted_bytes += arrived_there.bytes;
  sum.corrupt += sent.corrupt + arrived_there.corrupt + received.corrupt;
  sum.elapsed_ns += sent.elapsed_ns;
  latency_ns.add(sent.latency_ns);
}

Status check_traffic(int self, const Peer& peer) {
  if (peer.now.inbound != nullptr) {
    if (Status right = check_messages(names(peer.rank, self), peer.now.inbound->tally()); !right.ok()) return right;
  }
  if (peer.now.outbound == nullptr) return {};
  const OutboundFigures sent = peer.now.outbound->figures();
  if (sent.corrupt != 0) {
    return differ(std::to_string(sent.corrupt) + " of " + std::to_string(sent.messages) + " READs by node " +
                  std::to_string(self) + " of node " + std::to_string(peer.rank) +
                  " do not return the data of that node: " + sent.difference);
  }
  if (!peer.now.checked) return {};
  const Tally& there = *peer.now.checked;
  if (Status right = check_messages(names(self, peer.rank), there); !right.ok()) return right;
  const bool counted = peer.now.outbound->terms().is_counted();
  if (!counted || (there.messages == sent.messages && there.bytes == sent.bytes)) return {};
  return differ(std::to_string(sent.bytes) + " bytes in " + std::to_string(sent.messages) +
                " messages were sent from " + names(self, peer.rank) + ", and " + std::to_string(there.bytes) +
                " bytes in " + std::to_string(there.messages) + " messages arrived");
}

PeerResult figures_of(const Peer& peer) {
  PastLives all = peer.past.value_or(PastLives{});
  if (peer.now.outbound) all.add(peer.now.outbound->figures(), peer.now.checked.value_or(Tally{}), {});
  PeerResult figures = all.sum;
  figures.rank = static_cast<std::uint32_t>(peer.rank);
  figures.latency_us = all.latency_ns.summary().scaled(1e-3);
  return figures;
}

}  // namespace rdmacomm::mesh
