// peer.h - what a node knows of another one.
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

/// What this node has sent to another one in lives of that one that have ended. A value.
struct PastLives {
  PeerResult sum = {};  ///< but for latency_us
  programs::LatencyHistogram latency_ns = {};

  /// received   messages that came from it: it cannot tell any more that they were not what was sent
  void add(const OutboundFigures& sent, const Tally& arrived_there, const Tally& received);
};

/// One of the others, as the node's own thread sees it. What `now` has is of its present life: all of it starts again
/// when the node comes back.
struct Peer {
  enum class State : std::uint8_t {
    kAwaited,  ///< not connected in both directions yet
    kHere,
    kLost,
    kLeft,  ///< in order, at the end
  };
  struct Life {
    std::optional<Introduction> introduction = {};
    EndPoint to = {};    ///< of this node's client session
    EndPoint from = {};  ///< of its server session
    std::shared_ptr<Outbound> outbound = nullptr;
    std::shared_ptr<Inbound> inbound = nullptr;
    bool ready = false;  ///< it has said so, or was running already
    bool told_ready = false;
    bool told_finished = false;
    bool told_checked = false;
    std::optional<Tally> finished = {};       ///< what it says that it has sent
    Deadline arrives_by = Deadline::never();  ///< until when that must be here
    std::optional<Tally> checked = {};        ///< what it says that has arrived there
    std::optional<NodeResult> result = {};
    std::optional<Deadline> trouble = {};  ///< something is wrong: how long to wait for a better reason
    std::string trouble_text = {};         ///< empty: the links know it
  };

  int rank = 0;
  HostPort address = {};
  State state = State::kAwaited;
  bool connecting = false;                 ///< Connections::connect() is under way
  std::optional<Deadline> try_again = {};  ///< one that does not fit was at its address: when to look for the right one
  Life now = {};
  std::optional<PastLives> past = {};

  [[nodiscard]] bool is_gone() const noexcept { return state == State::kLost || state == State::kLeft; }
  /// One of its endpoints is up, and has not been silent for too long: it may be busy with others that do not answer.
  [[nodiscard]] bool gives_signs_of_life() const {
    return (now.to && now.to.alive()) || (now.from && now.from.alive());
  }
  [[nodiscard]] bool is_linked() const noexcept { return now.to && now.from; }
};

/// Whether the messages of its present life are what was sent, in both directions, as far as either side knows.
/// Returns  std::errc::io_error: they are not; the context says which and how
[[nodiscard]] Status check_traffic(int self, const Peer& peer);
/// What was sent to it, in all its lives.
[[nodiscard]] PeerResult figures_of(const Peer& peer);

}  // namespace rdmacomm::mesh
