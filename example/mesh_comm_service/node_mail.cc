// Node: mail from other nodes. A node sends mail over the endpoint that it has connected, and reads mail from the
// endpoint that the peer has connected.
#include "mesh_comm_service/node.h"

namespace rdmacomm::mesh {
namespace {

constexpr std::chrono::milliseconds kReadAllEvery{100};
constexpr std::chrono::seconds kSendTime{2};
constexpr std::chrono::seconds kArrivesWithin{30};  // after the sender has reported that it sent everything

}  // namespace

void Node::read_mail() {
  std::vector<int> ranks;
  ranks.swap(has_mail_);
  // A connection may read bytes by itself, and not all kinds of connections report that on a descriptor.
  if (read_all_mail_.passed()) {
    for (const Peer& peer : peers_) ranks.push_back(peer.rank);
    read_all_mail_ = Deadline::after(kReadAllEvery);
  }
  for (const int rank : ranks) {
    if (phase_ != Phase::kOver) read_mail_of(*find(rank));
  }
}

/// Ignores a process that claims to be node `peer` until this node has reached it.
void Node::read_mail_of(Peer& peer) {
  while (peer.is_linked() && phase_ != Phase::kOver) {
    const auto message = peer.now.from.receive_message(Deadline::after({}));
    if (!message) return;  // none now, or none any more; then kEnded follows
    auto mail = Mail::decode(*message);
    if (!mail) return lose(peer, mail.error().context);
    take(peer, std::move(*mail));
  }
}

void Node::take(Peer& peer, Mail mail) {
  Peer::Life& life = peer.now;
  switch (mail.kind) {
    case MailKind::kReady: life.ready = true; return;
    case MailKind::kFinished:
      life.finished = std::move(mail.tally);
      life.arrives_by = Deadline::after(kArrivesWithin);
      life.inbound->expect(life.finished->messages);
      return;
    case MailKind::kChecked: life.checked = std::move(mail.tally); return;
    case MailKind::kResult: life.result = std::move(mail.result); return;
    case MailKind::kOver:
      if (phase_ == Phase::kClosing) phase_ = Phase::kOver;
      return;
    case MailKind::kStop: return stop_asked(mail);
  }
}

void Node::stop_asked(const Mail& mail) {
  Peer* const lost = find(static_cast<int>(mail.rank));
  if (lost != nullptr) {
    if (!lost->is_gone()) lose(*lost, mail.text);
    return;
  }
  if (static_cast<int>(mail.rank) != options_.rank) return;  // of a node that does not exist
  // The other nodes consider this one lost.
  fail(make_error(Errc::kPeerLost, "the other nodes have lost this node, and stop: " + mail.text));
}

void Node::send(Peer& peer, const Mail& mail) {
  if (!peer.now.to) return;
  // If it cannot be sent, the endpoint has ended or is about to, and kEnded reports that.
  (void)peer.now.to.send_message(mail.encode(), Deadline::after(kSendTime)).ok();
}

}  // namespace rdmacomm::mesh
