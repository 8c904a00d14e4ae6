// The sending half of TCPConnector.
#include <poll.h>
#include <sys/socket.h>

#include "connector/socket.h"
#include "rdmacomm/base/log.h"
#include "rdmacomm/base/system_call.h"
#include "rdmacomm/connector/tcp_connector.h"

namespace rdmacomm {

Status TCPConnector::send_message(MessageType type, std::span<const std::byte> payload, Deadline deadline) {
  auto frame = frame_message(type, payload);
  if (!frame) return frame.status();
  Status claimed = claim_sending(deadline);
  if (!claimed) return claimed;
  RDMACOMM_VLOG(3) << "sending " << rdmacomm::to_text(type) << ", " << payload.size() << " bytes, to " << peer_address_;
  Status sent = write_all(*frame, deadline);
  release_sending();
  return sent;
}

/// Waits until no other thread is in the middle of a message.
Status TCPConnector::claim_sending(Deadline deadline) {
  std::unique_lock lock(mutex_);
  while (!end_ && !last_sent_ && sending_) {
    if (deadline.passed()) return late("takes no messages: another thread is still sending one");
    if (deadline.is_never()) {
      changed_.wait(lock);
    } else {
      changed_.wait_until(lock, deadline.time_point());
    }
  }
  if (end_) return *end_;
  if (last_sent_) return make_error(Errc::kWrongState, "this side has ended the connection to " + who() + " already");
  sending_ = true;
  return {};
}

void TCPConnector::release_sending() {
  const std::lock_guard lock(mutex_);
  sending_ = false;
  changed_.notify_all();
}

Status TCPConnector::write_all(std::span<const std::byte> frame, Deadline deadline) {
  std::size_t sent = 0;
  while (sent < frame.size()) {
    const auto rest = frame.subspan(sent);
    const ssize_t count =
        retry_interrupted([&] { return ::send(socket_.get(), rest.data(), rest.size(), MSG_NOSIGNAL | MSG_DONTWAIT); });
    if (count >= 0) {
      sent += static_cast<std::size_t>(count);
      continue;
    }
    const std::error_code why = last_system_error();
    if (why != std::errc::operation_would_block) return why_not_sent(why);
    if (wait_for(socket_.get(), POLLOUT, -1, deadline) != Waited::kTimeout) continue;
    const std::lock_guard lock(mutex_);
    if (sent == 0) return late("takes no messages: it does not read them");
    const Error broken = late("took a part of a message and then no more; the connection is broken");
    end(PeerState::kLost, make_error(Errc::kPeerLost, "took a part of a message and then no more"));
    ::shutdown(socket_.get(), SHUT_RDWR);
    return broken;
  }
  return {};
}

/// The peer's own words are more use than "broken pipe".
Error TCPConnector::why_not_sent(std::error_code why) {
  [[maybe_unused]] const PeerState known = check_peer();
  const std::lock_guard lock(mutex_);
  end(PeerState::kLost, make_error(Errc::kPeerLost, "cannot be sent to: " + why.message()));
  return *end_;
}

void TCPConnector::refuse(const Error& reason) noexcept {
  std::unique_lock lock(mutex_);
  if (claim_last_words(lock)) send_last(MessageType::kReject, Reject::of(reason).encode());
}

void TCPConnector::say_goodbye() noexcept {
  std::unique_lock lock(mutex_);
  if (claim_last_words(lock)) send_last(MessageType::kGoodbye, {});
}

/// Keeps new senders out, and gives one that is in the middle of a message the time to finish it: one that does not
/// has a peer that does not read, and would not read last words either.
bool TCPConnector::claim_last_words(std::unique_lock<std::mutex>& lock) {
  if (last_sent_) return false;
  last_sent_ = true;
  changed_.notify_all();
  changed_.wait_until(lock, Deadline::after(kLastWordsTime).time_point(), [&] { return !sending_; });
  return true;
}

/// With last_sent_ set by the caller.
void TCPConnector::send_last(MessageType type, std::span<const std::byte> payload) noexcept {
  const auto frame = frame_message(type, payload);
  // In the middle of another thread's message it would be taken for a part of that one.
  if (frame && !sending_) {
    // To a peer that is gone, or does not read, it cannot be said; the end of the stream then says enough.
    [[maybe_unused]] const ssize_t sent =
        ::send(socket_.get(), frame->data(), frame->size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  ::shutdown(socket_.get(), SHUT_WR);
}

}  // namespace rdmacomm
