#include "mesh_comm_service/link.h"

#include <algorithm>

#include "base/wire.h"
#include "rdmacomm/device.h"
#include "support/client_domain.h"

namespace rdmacomm::mesh {

void Link::on_completion(const Completion& completion) {
  const std::lock_guard lock(mutex_);
  if (completion.error == Errc::kFlushed) return;  // its endpoint has ended, and that event has the reason
  if (!completion.ok()) return fail_locked(completion.status());
  if (channel_ != nullptr) complete(completion);
}

void Link::detach() {
  const std::lock_guard lock(mutex_);
  channel_ = nullptr;
}

void Link::release() {
  const std::lock_guard lock(mutex_);
  channel_ = nullptr;
  payload_ = {};
  notes_ = {};
  domain_ = {};
  device_ = {};
}

Status Link::trouble() const {
  const std::lock_guard lock(mutex_);
  return trouble_;
}

void Link::fail_locked(const Status& why) {
  if (!trouble_.ok()) return;
  trouble_ = why;
  channel_ = nullptr;
  parts_.events->put({.kind = NodeEvent::Kind::kTrouble, .rank = parts_.peer, .of = this});
}

void Link::fail_locked(Outcome posting) {
  fail_locked(Status(make_error(posting.code(), "cannot post to node " + std::to_string(parts_.peer))));
}

Status Link::make_payload(std::size_t blocks, RemoteAccess access) {
  BufferOptions options;
  options.name = kTrafficRegion;
  options.block_bytes = parts_.terms.block_bytes();
  options.block_count = blocks;
  options.remote_access = access;
  auto made = programs::allocate_for(device_, domain_, options);
  if (made) payload_ = std::move(*made);
  return made.status();
}

Status Link::make_notes() {
  BufferOptions options;
  options.name = "notes";
  options.block_bytes = kNoteBytes;
  options.block_count = Terms::kNotes + static_cast<std::size_t>(parts_.terms.queue_depth());
  auto made = programs::allocate_for(device_, domain_, options);
  if (made) notes_ = std::move(*made);
  return made.status();
}

BufferSlice Link::incoming_note(std::uint64_t number) const {
  return notes_.at(static_cast<std::size_t>(number % Terms::kNotes));
}

bool Link::send_note(std::uint64_t messages, std::uint64_t bytes) {
  const std::uint64_t place = notes_sent_ % static_cast<std::uint64_t>(parts_.terms.queue_depth());
  const BufferSlice note = notes_.at(static_cast<std::size_t>(Terms::kNotes + place));
  write_note(note.bytes(), messages, bytes);
  const Outcome posted = channel_->post_send(note, {.id = id()});
  if (!posted && posted != Errc::kSendQueueFull && posted != Errc::kNotConnected) fail_locked(posted);
  if (!posted) return false;
  ++notes_sent_;
  return true;
}

std::uint64_t message_seed(int from, int to, std::uint64_t message) noexcept {
  return static_cast<std::uint64_t>(from) << 54U ^ static_cast<std::uint64_t>(to) << 44U ^ message;
}

void write_note(std::span<std::byte> to, std::uint64_t messages, std::uint64_t bytes) noexcept {
  for (std::size_t i = 0; i < 8; ++i) {
    to[i] = static_cast<std::byte>(messages >> (8 * i));
    to[8 + i] = static_cast<std::byte>(bytes >> (8 * i));
  }
}

Note read_note(std::span<const std::byte> from) noexcept {
  WireReader reader(from);
  const auto messages = reader.get<std::uint64_t>();
  return {messages, reader.get<std::uint64_t>()};
}

std::uint32_t length_of(const Terms& terms, std::uint64_t message) noexcept {
  if (terms.total == 0) return static_cast<std::uint32_t>(terms.size);
  return static_cast<std::uint32_t>(std::min(terms.size, terms.total - message * terms.size));
}

}  // namespace rdmacomm::mesh
