// The sending half of Connector.
#include "base/logging.h"
#include "base/out_of_memory.h"
#include "base/wait.h"
#include "connector/byte_stream.h"
#include "connector/connector.h"

namespace rdmacomm {

Status Connector::send_message(MessageType type, std::span<const std::byte> payload, Deadline deadline) {
  auto frame = frame_message(type, payload);
  if (!frame) return frame.status();
  Status claimed = claim_sending(deadline);
  if (!claimed) return claimed;
  RDMACOMM_VLOG(3) << "sending " << rdmacomm::to_text(type) << ", " << payload.size() << " bytes, to "
                   << peer_address();
  Status sent = write_all(std::move(*frame), deadline);
  release_sending();
  return sent;
}

/// Skips a heartbeat if the stream has no room now: the unread bytes also show the peer that this process is alive. If
/// an earlier heartbeat was sent in part, its rest is sent first.
void Connector::send_heartbeat() {
  {
    const std::lock_guard lock(mutex_);
    if (end_ || last_sent_ || sending_) return;
    sending_ = true;
  }
  const bool begun = !unsent_.empty();
  if (!begun) unsent_ = *frame_message(MessageType::kHeartbeat, {});
  const Transfer some = stream_->send(unsent_);
  unsent_.erase(unsent_.begin(), unsent_.begin() + static_cast<std::ptrdiff_t>(some.bytes));
  if (!begun && some.bytes == 0) unsent_.clear();
  release_sending();
}

/// Waits until no other thread is sending a message.
Status Connector::claim_sending(Deadline deadline) {
  std::unique_lock lock(mutex_);
  while (!end_ && !last_sent_ && sending_) {
    if (deadline.passed())
      return late("did not receive the message in time: another thread is still sending one to it");
    wait(sent_, lock, deadline);
  }
  if (end_) return *end_;
  if (last_sent_) return make_error(Errc::kWrongState, "the connection to " + who() + " was already ended locally");
  sending_ = true;
  return {};
}

void Connector::release_sending() {
  const std::lock_guard lock(mutex_);
  sending_ = false;
  sent_.notify_all();
}

Status Connector::write_all(std::vector<std::byte> frame, Deadline deadline) {
  std::size_t sent = 0;
  frame.insert(frame.begin(), unsent_.begin(), unsent_.end());
  while (sent < frame.size()) {
    const auto rest = std::span(frame).subspan(sent);
    const Transfer some = stream_->send(rest);
    sent += some.bytes;
    if (!some.error) continue;
    if (some.error != std::errc::operation_would_block) return why_not_sent(some.why());
    if (stream_->await_room(deadline)) continue;
    const std::lock_guard lock(mutex_);
    if (sent == 0) return late("did not receive the message in time: its process does not read messages");
    const Error broken = late("stopped reading in the middle of a message; the connection is broken");
    end(PeerState::kLost, make_error(Errc::kPeerLost, "stopped reading in the middle of a message"));
    stream_->shut_down(LastBytes::kDrop);
    return broken;
  }
  unsent_.clear();
  return {};
}

/// The peer's own reason is more helpful than "broken pipe".
Error Connector::why_not_sent(const std::string& why) {
  [[maybe_unused]] const PeerState known = check_peer();
  const std::lock_guard lock(mutex_);
  end(PeerState::kLost, make_error(Errc::kPeerLost, "is lost, because sending to it failed: " + why));
  return *end_;
}

void Connector::refuse(const Error& reason) noexcept {
  std::unique_lock lock(mutex_);
  if (claim_last_message(lock)) send_last(MessageType::kReject, &reason);
}

void Connector::send_goodbye() noexcept {
  std::unique_lock lock(mutex_);
  if (claim_last_message(lock)) send_last(MessageType::kGoodbye, nullptr);
}

/// Keeps new senders out, and gives a thread that is sending a message time to finish. If it does not finish, the peer
/// does not read, and would not read a last message either.
bool Connector::claim_last_message(std::unique_lock<std::mutex>& lock) {
  if (last_sent_) return false;
  last_sent_ = true;
  sent_.notify_all();
  (void)wait(sent_, lock, Deadline::after(kLastMessageTime), [&] { return !sending_; });
  return true;
}

/// The caller has set last_sent_. Without memory for the message, only the end of the stream is sent.
void Connector::send_last(MessageType type, const Error* reason) noexcept {
  [[maybe_unused]] const Status finished = or_out_of_memory([&] {
    const auto frame = frame_message(type, reason != nullptr ? Reject::of(*reason).encode() : std::vector<std::byte>());
    // Inside another thread's message, its bytes would be taken for a part of that message.
    if (!frame || sending_) return frame.status();
    // A peer that is lost or does not read cannot receive it; it then sees only the end of the stream.
    unsent_.insert(unsent_.end(), frame->begin(), frame->end());
    [[maybe_unused]] const Transfer sent = stream_->send(unsent_);
    return Status();
  });
  stream_->end_sending();
}

}  // namespace rdmacomm
