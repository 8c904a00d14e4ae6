#include "mesh_comm_service/outbound.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "support/pattern.h"

namespace rdmacomm::mesh {

Status Outbound::prepare(RDMADevice device, ProtectionDomain domain) {
  const std::lock_guard lock(mutex_);
  device_ = std::move(device);
  domain_ = std::move(domain);
  const Terms& terms = parts_.terms;
  const std::size_t blocks = terms.has_own_places() ? terms.depth : 1;
  if (Status made = make_payload(blocks, RemoteAccess::kNone); !made.ok()) return made;
  posted_at_.resize(terms.depth);
  programs::fill_pattern(payload_.bytes(), message_seed(parts_.self, parts_.peer, 0));
  return make_notes();
}

Status Outbound::attach(const EndPoint& endpoint) {
  const std::lock_guard lock(mutex_);
  const auto region = endpoint.remote_region(kTrafficRegion);
  const std::uint64_t needed = parts_.terms.block_bytes() * parts_.terms.depth;
  const bool one_sided = parts_.terms.op != Operation::kSend;
  if (one_sided && (!region || region->length < needed)) {
    return make_error(Errc::kIncompatiblePeer,
                      endpoint.peer() + " has not published the memory that the traffic needs");
  }
  theirs_ = region ? *region : RemoteRegion();
  channel_ = &endpoint.channel();
  if (!parts_.terms.is_counted()) return {};
  for (std::uint64_t i = 0; i < Terms::kNotes; ++i) {
    if (const Outcome posted = channel_->post_recv(incoming_note(i), {.id = id()}); !posted) {
      return make_error(posted.code(), "cannot post a receive for node " + std::to_string(parts_.peer));
    }
  }
  return {};
}

void Outbound::start(std::uint64_t until_ticks) {
  const std::lock_guard lock(mutex_);
  if (started_) return;
  started_ = true;
  until_ticks_ = until_ticks;
  started_at_ = last_at_ = clock_.now();
  pump();
}

void Outbound::look_at_clock() {
  const std::lock_guard lock(mutex_);
  pump();
}

bool Outbound::started() const {
  const std::lock_guard lock(mutex_);
  return started_;
}
bool Outbound::finished() const {
  const std::lock_guard lock(mutex_);
  return finished_;
}

OutboundFigures Outbound::figures() const {
  const std::lock_guard lock(mutex_);
  OutboundFigures figures = figures_;
  figures.messages = complete_;
  figures.elapsed_ns = static_cast<std::uint64_t>(clock_.ns(last_at_ - started_at_));
  return figures;
}

/// Posts messages until the limit is reached, and checks whether everything is complete.
void Outbound::pump() {
  if (!started_ || finished_ || channel_ == nullptr) return;
  while (may_post() && post_next()) {
  }
  if (channel_ == nullptr) return;
  const Terms& terms = parts_.terms;
  const bool no_more = terms.total != 0 ? posted_bytes_ == terms.total : time_over_;
  if (no_more) announce_progress();
  if (!no_more || complete_ < posted_) return;
  finished_ = true;
  parts_.events->put({.kind = NodeEvent::Kind::kProgress, .rank = parts_.peer, .of = this});
}

bool Outbound::may_post() {
  const Terms& terms = parts_.terms;
  if (terms.total != 0 && posted_bytes_ == terms.total) return false;
  if (terms.total == 0 && !time_over_) time_over_ = clock_.now() >= until_ticks_;
  if (terms.total == 0 && time_over_) return false;
  const std::uint64_t free_from = terms.is_counted() ? std::min(complete_, peer_has_) : complete_;
  return posted_ - free_from < terms.depth;
}

/// Posts the next message. Returns whether it was posted.
bool Outbound::post_next() {
  const std::uint32_t length = length_of(parts_.terms, posted_);
  posted_at_[slot(posted_)] = clock_.now();
  const Outcome posted = post_message(length);
  if (posted == Errc::kSendQueueFull) return false;
  if (!posted) {
    // The queue pair has ended: its endpoint has ended, or is about to, and has the reason.
    if (posted != Errc::kNotConnected) fail_locked(posted);
    return false;
  }
  ++posted_;
  posted_bytes_ += length;
  if (posted_ - announced_ >= parts_.terms.batch()) announce_progress();
  return true;
}

Outcome Outbound::post_message(std::uint32_t length) {
  const Terms& terms = parts_.terms;
  const BufferSlice local = block(posted_).first(length);
  const RemoteRegion remote = theirs_.slice_unchecked(slot(posted_) * terms.block_bytes());
  if (terms.op == Operation::kRead) {
    if (terms.verify) std::memset(local.data(), 0, length);
    return channel_->post_read(local, remote, {.id = id()});
  }
  if (terms.verify) programs::fill_pattern(local.bytes(), message_seed(parts_.self, parts_.peer, posted_));
  if (terms.op == Operation::kSend) return channel_->post_send(local, {.id = id()});
  if (terms.op == Operation::kWrite) return channel_->post_write(local, remote, {.id = id()});
  return channel_->post_write(local, remote, {.id = id(), .immediate = immediate_of(posted_)});
}

/// Tells the peer which WRITEs it must verify. They arrive before the note does.
void Outbound::announce_progress() {
  if (!(parts_.terms.op == Operation::kWrite && parts_.terms.verify) || announced_ == posted_) return;
  if (send_note(posted_, posted_bytes_)) announced_ = posted_;
}

void Outbound::complete(const Completion& completion) {
  const bool is_message = completion.operation == parts_.terms.op;
  if (completion.operation == Operation::kRecv) {
    note_arrived();
  } else if (is_message) {
    message_done();
  }
  pump();
}

void Outbound::message_done() {
  last_at_ = clock_.now();
  figures_.latency_ns.add(static_cast<std::uint64_t>(clock_.ns(last_at_ - posted_at_[slot(complete_)])));
  if (parts_.terms.op == Operation::kRead && parts_.terms.verify) check_read();
  figures_.bytes += length_of(parts_.terms, complete_);
  ++complete_;
}

/// The peer fills its memory once, each place with its own pattern.
void Outbound::check_read() {
  const std::uint64_t seed = message_seed(parts_.peer, parts_.self, slot(complete_));
  const auto bytes = block(complete_).first(length_of(parts_.terms, complete_)).bytes();
  const std::size_t at = programs::first_difference(bytes, seed);
  if (at == bytes.size()) return;
  if (figures_.corrupt++ == 0) figures_.difference = programs::difference_text(bytes, at, seed);
}

void Outbound::note_arrived() {
  const BufferSlice note = incoming_note(notes_received_++);
  peer_has_ = read_note(note.bytes()).messages;
  const Outcome posted = channel_->post_recv(note, {.id = id()});
  if (!posted && posted != Errc::kNotConnected) fail_locked(posted);
}

BufferSlice Outbound::block(std::uint64_t message) const {
  return payload_.at(static_cast<std::size_t>(message % payload_.block_count()));
}

}  // namespace rdmacomm::mesh
