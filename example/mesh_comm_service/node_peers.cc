// Node: other nodes that connect and disconnect.
#include <sys/epoll.h>

#include <algorithm>
#include <iostream>

#include "mesh_comm_service/node.h"
#include "support/program.h"

namespace rdmacomm::mesh {
namespace {

/// A request that fails may be the first evidence that a peer has died. Its connection shows the reason a moment later.
constexpr std::chrono::seconds kReasonFollowsWithin{1};
constexpr std::chrono::milliseconds kTryAgainAfter{100};

std::string name_of(const Peer& peer) {
  return "node " + std::to_string(peer.rank) + " (" + peer.address.to_text() + ")";
}

/// Whether a wrong process was at the address, or one that ended before its introduction. The right one may still be
/// started.
bool is_misfit(const std::error_code& code) {
  return code == Errc::kIncompatiblePeer || code == Errc::kPeerRefused || code == Errc::kVersionMismatch ||
         code == Errc::kPeerLost || code == Errc::kPeerClosed;
}

/// The reason for an end, as text.
std::string reason(const Status& status) {
  return status.ok() ? "it has disconnected" : status.error().context;
}

}  // namespace

/// Writes with one call, so that lines of several nodes on one terminal do not mix.
void Node::say(const std::string& what) const {
  std::cerr << programs::program_name() + ": node " + std::to_string(options_.rank) + ": " + what + "\n" << std::flush;
}

void Node::handle(NodeEvent event) {
  if (event.kind == NodeEvent::Kind::kMisfit) return refused(event.status);
  Peer* const peer = find(event.rank);
  if (peer == nullptr || phase_ == Phase::kOver) return;
  switch (event.kind) {
    case NodeEvent::Kind::kArrived: return welcome(*peer, event);
    case NodeEvent::Kind::kConnected: return connected(*peer, event);
    case NodeEvent::Kind::kNotReached: return not_reached(*peer, event);
    case NodeEvent::Kind::kEnded: return endpoint_ended(*peer, event);
    case NodeEvent::Kind::kTrouble: return link_in_trouble(*peer, event);
    case NodeEvent::Kind::kProgress:  // advance() checks it
    case NodeEvent::Kind::kMisfit: return;
  }
}

/// For a node of another mesh, or of this mesh with other options. Its server refuses this node as well, which causes
/// all further steps.
void Node::refused(const Status& why) {
  if (phase_ != Phase::kOver) say("refused " + why.error().context);
}

void Node::connect_to(Peer& peer) {
  if (peer.connecting) return;
  peer.connecting = true;
  connections_->connect(peer.rank, peer.address);
}

/// Whether the endpoint belongs to another process that claims to be this node, while the first one is here. This
/// happens if both were in the handshake at the same time; otherwise Connections decides it.
bool Node::is_second(const Peer& peer, const EndPoint& endpoint) {
  const auto introduction = Introduction::decode(endpoint.peer_private_data());
  const bool other =
      introduction && peer.now.introduction && peer.now.introduction->incarnation != introduction->incarnation;
  if (!other) return false;
  const bool reached = peer.now.to && peer.now.to.alive();
  const bool was_first = peer.now.from && peer.now.from.alive() &&
                         (connections_->is_of_known_host(peer.now.from) || !connections_->is_of_known_host(endpoint));
  if (!reached && !was_first) return false;
  const auto line = seconds_.line(endpoint.peer(), "refused a second " + name_of(peer) + ": " + endpoint.peer(),
                                  programs::HostPace::Clock::now());
  if (line) say(*line);
  return true;
}

/// Whether the endpoint belongs to the known process of the node, or to a new one, which then becomes the known one.
bool Node::introduce(Peer& peer, const EndPoint& endpoint) {
  auto introduction = Introduction::decode(endpoint.peer_private_data());
  if (!introduction || !endpoint.alive()) return false;  // for an ended one, kEnded came before it was known
  if (!peer.now.introduction || peer.now.introduction->incarnation != introduction->incarnation) {
    const bool is_back = peer.is_gone() || peer.is_linked();
    end_life(peer);  // the new process may connect before the end of the old one was noticed
    if (is_back) say(name_of(peer) + " is back");
    peer.state = Peer::State::kAwaited;
    peer.now.introduction = *introduction;
  }
  if (introduction->running) {
    peer.now.introduction->running = true;
    peer.now.introduction->remaining_us = introduction->remaining_us;
    peer.now.ready = true;
  }
  return true;
}

/// Node `peer` has connected to this one. If the node was lost, it is back, and this one connects to it again.
void Node::welcome(Peer& peer, NodeEvent& event) {
  if (!event.endpoint) return;
  if (phase_ == Phase::kClosing) return event.endpoint.stop();  // it connected just before connections were refused
  if (is_second(peer, event.endpoint)) return event.endpoint.stop();
  if (!introduce(peer, event.endpoint)) return;
  close_mailbox(peer);
  peer.now.from = std::move(event.endpoint);
  peer.now.inbound = std::static_pointer_cast<Inbound>(event.link);
  const Status added = descriptors_->add(peer.now.from.messages_fd(), EPOLLIN | EPOLLET,
                                         [this, rank = peer.rank](std::uint32_t) { has_mail_.push_back(rank); });
  if (!added.ok()) return lose(peer, reason(added));
  if (!peer.now.to) connect_to(peer);
  look_if_here(peer);
}

/// This node has connected to `peer`.
void Node::connected(Peer& peer, NodeEvent& event) {
  peer.connecting = false;
  if (peer.is_gone()) return event.endpoint.stop();  // if it is alive, it will connect by itself
  if (!introduce(peer, event.endpoint)) {
    // It has ended meanwhile. If the node has just come back, this was the endpoint of its old process.
    if (peer.now.from) return connect_to(peer);
    return lose(peer, reason(event.endpoint.status()));
  }
  peer.now.to = std::move(event.endpoint);
  peer.now.outbound = std::static_pointer_cast<Outbound>(event.link);
  look_if_here(peer);
}

void Node::not_reached(Peer& peer, const NodeEvent& event) {
  peer.connecting = false;
  if (peer.is_gone()) return;
  // The node is here, but was too busy.
  if (event.status.code() == Errc::kTimeout && peer.has_live_endpoint()) return connect_to(peer);
  const std::string why = "cannot connect to it: " + reason(event.status);
  // If this node has reached no other node either, the mistake is probably its own.
  const bool reached_another =
      std::ranges::any_of(peers_, [](const Peer& other) { return other.now.to && other.now.to.alive(); });
  const bool in_time = phase_ == Phase::kConnecting && !connected_by_.passed();
  if (!in_time || !reached_another || !is_misfit(event.status.code())) return lose(peer, why);
  if (!peer.try_again) say(name_of(peer) + " is still awaited: " + why);
  peer.try_again = Deadline::after(kTryAgainAfter);
}

void Node::look_for_the_right_ones() {
  for (Peer& peer : peers_) {
    const bool awaited = peer.state == Peer::State::kAwaited && !peer.now.to;
    if (awaited && peer.try_again && peer.try_again->passed()) connect_to(peer);
  }
}

void Node::look_if_here(Peer& peer) {
  if (!peer.is_linked()) return;
  peer.state = Peer::State::kHere;
  has_mail_.push_back(peer.rank);  // its mail has waited for this
  if (phase_ == Phase::kRunning) begin_traffic_to(peer);
}

void Node::close_mailbox(Peer& peer) {
  if (!peer.now.from) return;
  descriptors_->remove(peer.now.from.messages_fd());
  peer.now.from.stop();
}

void Node::endpoint_ended(Peer& peer, const NodeEvent& event) {
  const bool known = event.ended == peer.now.to || event.ended == peer.now.from;
  if (!known || peer.is_gone()) return;
  read_mail_of(peer);  // its last mail may explain the end
  if (phase_ == Phase::kOver || peer.is_gone()) return;
  if (!peer.now.to) return forget_unproven(peer, reason(event.status));
  const EndPoint& endpoint = event.ended == peer.now.to ? peer.now.to : peer.now.from;
  const std::error_code why = endpoint.status().code();
  if (why != Errc::kPeerClosed && why != Errc::kStopped) return lose(peer, reason(event.status));
  if (phase_ == Phase::kClosing) {
    end_life(peer);
    peer.state = Peer::State::kLeft;
    return;
  }
  // It disconnects too early. If it does so because another node was lost, its message about that will arrive soon.
  if (!peer.now.trouble) peer.now.trouble = Deadline::after(kReasonFollowsWithin);
  peer.now.trouble_text = reason(event.status);
}

/// A process that claimed to be node `peer`, and that this node has not reached, has ended. This node still tries to
/// connect to the node itself, and that decides.
void Node::forget_unproven(Peer& peer, const std::string& why) {
  if (!peer.connecting && !peer.try_again) return lose(peer, why);
  end_life(peer);
}

void Node::link_in_trouble(Peer& peer, const NodeEvent& event) {
  if (event.of != peer.now.outbound.get() && event.of != peer.now.inbound.get()) return;
  if (!peer.now.to) return forget_unproven(peer, "a request failed");
  if (!peer.now.trouble) peer.now.trouble = Deadline::after(kReasonFollowsWithin);
}

void Node::look_at_troubles() {
  for (Peer& peer : peers_) {
    if (phase_ == Phase::kOver) return;
    if (peer.is_gone() || !peer.now.trouble || !peer.now.trouble->passed()) continue;
    if (!peer.now.trouble_text.empty()) {
      lose(peer, std::string(peer.now.trouble_text));
      continue;
    }
    Status why = peer.now.outbound != nullptr ? peer.now.outbound->trouble() : Status();
    if (why.ok() && peer.now.inbound != nullptr) why = peer.now.inbound->trouble();
    lose(peer, why.ok() ? "a request failed" : why.error().context);
  }
}

/// If this node stops because of the loss, it tells the others, so that they do not consider this one as the cause.
void Node::lose(Peer& peer, const std::string& why) {
  const std::string what = name_of(peer) + " is lost: " + why;
  end_life(peer);
  peer.state = Peer::State::kLost;
  if (options_.on_failure == OnFailure::kStop) {
    Mail mail = mail_of(MailKind::kStop);
    mail.rank = static_cast<std::uint32_t>(peer.rank);
    mail.text = why;
    for_each_here([&](Peer& other) { send(other, mail); });
    return fail(make_error(Errc::kPeerLost, what));
  }
  say(what);
  check_anybody_left();
}

void Node::check_anybody_left() {
  if (phase_ == Phase::kClosing) return;  // all results have been measured already
  for (const Peer& peer : peers_) {
    if (!peer.is_gone()) return;
  }
  fail(make_error(Errc::kPeerLost,
                  "no other node is left; if all of them were lost at the same time, probably this node was "
                  "stopped for a while, or its network connection was interrupted"));
}

/// Keeps the node's figures, and the errors in its messages, because it cannot report them any more.
void Node::end_life(Peer& peer) {
  Peer::Life& life = peer.now;
  if (phase_ != Phase::kClosing && phase_ != Phase::kOver) keep_figures(peer);
  close_mailbox(peer);
  if (life.to) life.to.stop();
  life = {};
}

void Node::keep_figures(Peer& peer) {
  const Peer::Life& life = peer.now;
  if (!peer.is_linked()) return;  // this node has not reached it, so it may have been any process
  if (!peer.past) peer.past.emplace();
  peer.past->add(life.outbound != nullptr ? life.outbound->figures() : OutboundFigures{},
                 life.checked.value_or(Tally{}), life.inbound != nullptr ? life.inbound->tally() : Tally{});
  const Status right = check_traffic(options_.rank, peer);
  if (right.ok()) return;
  say(right.error().context);
  note_corruption(right);
}

}  // namespace rdmacomm::mesh
