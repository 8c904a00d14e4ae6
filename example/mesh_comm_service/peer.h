// peer.h - the state that a node keeps about another node.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "mesh_comm_service/inbound.h"
#include "mesh_comm_service/mail.h"
#include "mesh_comm_service/outbound.h"
#include "mesh_comm_service/terms.h"
#include "rdmacomm/deadline.h"
#include "rdmacomm/endpoint.h"

namespace rdmacomm::mesh {

/// The traffic from this node to earlier processes of another node. A value.
struct PastLives {
  PeerResult sum = {};  ///< except latency_us
  programs::LatencyHistogram latency_ns = {};

  /// received   messages that came from it. The node itself cannot report errors in them any more
  void add(const OutboundFigures& sent, const Tally& arrived_there, const Tally& received);
};

/// The state of another node, for this node's own thread. `now` belongs to its current process, and starts again when
/// the node comes back.
struct Peer {
  enum class State : std::uint8_t {
    kAwaited,  ///< not yet connected in both directions
    kHere,
    kLost,
    kLeft,  ///< closed in order, at the end
  };
  struct Life {
    std::optional<Introduction> introduction = {};
    EndPoint to = {};    ///< from this node's client session
    EndPoint from = {};  ///< from this node's server session
    std::shared_ptr<Outbound> outbound = nullptr;
    std::shared_ptr<Inbound> inbound = nullptr;
    bool ready = false;  ///< it has reported it, or was already running
    bool told_ready = false;
    bool told_finished = false;
    bool told_checked = false;
    std::optional<Tally> finished = {};       ///< the count that it reports as sent
    Deadline arrives_by = Deadline::never();  ///< the deadline for their arrival
    std::optional<Tally> checked = {};        ///< the count that it reports as received
    std::optional<NodeResult> result = {};
    std::optional<Deadline> trouble = {};  ///< an error occurred: how long to wait for a better reason
    std::string trouble_text = {};         ///< empty: the links have the reason
  };

  int rank = 0;
  HostPort address = {};
  State state = State::kAwaited;
  bool connecting = false;                 ///< Connections::connect() is in progress
  std::optional<Deadline> try_again = {};  ///< a wrong process was at its address: when to try again
  Life now = {};
  std::optional<PastLives> past = {};

  [[nodiscard]] bool is_gone() const noexcept { return state == State::kLost || state == State::kLeft; }
  /// Whether one of its endpoints is established and not silent for too long. The node may be busy with others that do
  /// not answer.
  [[nodiscard]] bool has_live_endpoint() const { return (now.to && now.to.alive()) || (now.from && now.from.alive()); }
  [[nodiscard]] bool is_linked() const noexcept { return now.to && now.from; }
};

/// Whether the messages of its current process are equal to the sent ones, in both directions, as far as either peer
/// knows.
/// Returns  std::errc::io_error: they differ; the context describes the difference
[[nodiscard]] Status check_traffic(int self, const Peer& peer);
/// The traffic to the node, to all of its processes.
[[nodiscard]] PeerResult figures_of(const Peer& peer);

}  // namespace rdmacomm::mesh
