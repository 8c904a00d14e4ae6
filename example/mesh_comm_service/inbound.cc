#include "mesh_comm_service/inbound.h"

#include <utility>

#include "support/pattern.h"

namespace rdmacomm::mesh {

Status Inbound::prepare(RDMADevice device, ProtectionDomain domain) {
  const std::lock_guard lock(mutex_);
  device_ = std::move(device);
  domain_ = std::move(domain);
  const Terms& terms = parts_.terms;
  const bool read = terms.op == Operation::kRead;
  const bool sent = terms.op == Operation::kSend;  // to the memory of receives
  const RemoteAccess access = sent ? RemoteAccess::kNone : read ? RemoteAccess::kRead : RemoteAccess::kWrite;
  if (Status made = make_payload(terms.depth, access); !made.ok()) return made;
  for (std::size_t i = 0; read && i < payload_.block_count(); ++i) {
    programs::fill_pattern(payload_.at(i).bytes(), message_seed(parts_.self, parts_.peer, i));
  }
  return make_notes();
}

void Inbound::publish(HcaConfig& hca) const {
  const std::lock_guard lock(mutex_);
  hca.publish(payload_);
}

Status Inbound::attach(const EndPoint& endpoint) {
  const std::lock_guard lock(mutex_);
  channel_ = &endpoint.channel();
  if (!parts_.terms.is_counted()) return {};
  const std::uint64_t receives = parts_.terms.op == Operation::kWrite ? Terms::kNotes : parts_.terms.depth;
  for (std::uint64_t i = 0; i < receives; ++i) {
    if (const Outcome posted = post_receive(i); !posted) {
      return make_error(posted.code(), "cannot post a receive for node " + std::to_string(parts_.peer));
    }
  }
  return {};
}

void Inbound::expect(std::uint64_t messages) {
  const std::lock_guard lock(mutex_);
  expected_ = messages;
}

bool Inbound::has_all() const {
  const std::lock_guard lock(mutex_);
  return has_all_locked();
}

bool Inbound::has_all_locked() const noexcept {
  return expected_ && (!parts_.terms.is_counted() || tally_.messages >= *expected_);
}

Tally Inbound::tally() const {
  const std::lock_guard lock(mutex_);
  return tally_;
}

/// Messages use the receives in order, and each receive is posted again after its use. Therefore receive and message
/// number `number` use the same place.
Outcome Inbound::post_receive(std::uint64_t number) {
  switch (parts_.terms.op) {
    case Operation::kSend:
      return channel_->post_recv(payload_.at(static_cast<std::size_t>(number % parts_.terms.depth)), {.id = id()});
    case Operation::kWrite: return channel_->post_recv(incoming_note(number), {.id = id()});
    default: return channel_->post_recv({}, {.id = id()});
  }
}

void Inbound::complete(const Completion& completion) {
  const bool arrived = completion.operation == Operation::kRecv || completion.operation == Operation::kRecvWriteImm;
  if (!arrived) return;  // a local note was sent
  const bool had_all = has_all_locked();
  if (parts_.terms.op == Operation::kWrite) {
    take_note();
  } else {
    take_message(completion.bytes, completion.has_immediate ? std::optional(completion.immediate) : std::nullopt);
  }
  post_receive_again();
  // Tells the peer that it may continue. If there is no room for a note now, the next message tries again.
  if (channel_ != nullptr && tally_.messages - told_ >= parts_.terms.batch() &&
      send_note(tally_.messages, tally_.bytes)) {
    told_ = tally_.messages;
  }
  if (had_all || !has_all_locked()) return;
  parts_.events->put({.kind = NodeEvent::Kind::kProgress, .rank = parts_.peer, .of = this});
}

void Inbound::take_message(std::uint32_t bytes, std::optional<std::uint32_t> immediate) {
  if (parts_.terms.verify) check(tally_.messages, bytes, immediate);
  ++tally_.messages;
  tally_.bytes += bytes;
}

/// A note has arrived: all WRITEs up to its number are in memory.
void Inbound::take_note() {
  const Note note = read_note(incoming_note(receives_).bytes());
  if (note.messages < tally_.messages || note.messages - tally_.messages > parts_.terms.depth) {
    return fail_locked(Status(make_error(Errc::kBadMessage, "node " + std::to_string(parts_.peer) + " announced " +
                                                                std::to_string(note.messages) + " messages after " +
                                                                std::to_string(tally_.messages))));
  }
  while (tally_.messages < note.messages) take_message(length_of(parts_.terms, tally_.messages), {});
}

void Inbound::check(std::uint64_t message, std::uint32_t bytes, std::optional<std::uint32_t> immediate) {
  std::string difference = difference_of(message, bytes, immediate);
  if (!difference.empty() && tally_.corrupt++ == 0) tally_.difference = std::move(difference);
}

/// Describes the error of a message; empty: none.
std::string Inbound::difference_of(std::uint64_t message, std::uint32_t bytes,
                                   std::optional<std::uint32_t> immediate) const {
  const std::uint32_t due = length_of(parts_.terms, message);
  if (bytes != due) return std::to_string(bytes) + " bytes, but " + std::to_string(due) + " were expected";
  if (parts_.terms.op == Operation::kWriteImm && immediate != immediate_of(message)) {
    return (immediate ? "the immediate value " + std::to_string(*immediate) : "no immediate value") + ", but " +
           std::to_string(immediate_of(message)) + " was expected";
  }
  const auto arrived = payload_.at(static_cast<std::size_t>(message % parts_.terms.depth)).first(bytes).bytes();
  const std::uint64_t seed = message_seed(parts_.peer, parts_.self, message);
  const std::size_t at = programs::first_difference(arrived, seed);
  return at == arrived.size() ? "" : programs::difference_text(arrived, at, seed);
}

void Inbound::post_receive_again() {
  if (channel_ == nullptr) return;
  const Outcome posted = post_receive(receives_++);
  if (!posted && posted != Errc::kNotConnected) fail_locked(posted);
}

}  // namespace rdmacomm::mesh
