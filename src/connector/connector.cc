#include "connector/connector.h"

#include <algorithm>

#include "base/logging.h"
#include "base/out_of_memory.h"
#include "base/printable.h"
#include "connector/byte_stream.h"
#include "connector/socket.h"

namespace rdmacomm {

Connector::Connector(std::unique_ptr<ByteStream> stream) : stream_(std::move(stream)) {}

Connector::~Connector() = default;

std::unique_ptr<verbs::QueuePairLink> Connector::link(const QpAddress& /*local*/, const QpAddress& /*remote*/,
                                                      Deadline /*deadline*/) {
  return nullptr;
}

const std::string& Connector::peer_address() const noexcept {
  return stream_->peer_address();
}

const std::string& Connector::local_address() const noexcept {
  return stream_->local_address();
}

const Gid& Connector::local_gid_hint() const noexcept {
  return stream_->local_gid();
}

WatchedFd Connector::watched() const noexcept {
  return stream_->watched();
}

Result<Hello> Connector::exchange_hello(const Hello& mine, Deadline deadline) {
  const Status sent = send_message(MessageType::kHello, mine.encode(), deadline);
  if (!sent) return sent.error();
  return receive_hello(deadline);
}

Result<Hello> Connector::answer_hello(const Hello& mine, Deadline deadline) {
  auto theirs = receive_hello(deadline);
  if (!theirs) return theirs;
  const Status sent = send_message(MessageType::kHello, mine.encode(), deadline);
  if (!sent) return sent.error();
  return theirs;
}

Result<Hello> Connector::receive_hello(Deadline deadline) {
  auto payload = expect_message(MessageType::kHello, deadline);
  if (!payload) return payload.error();
  auto hello = Hello::decode(*payload);
  if (!hello) {
    refuse(hello.error());
    return make_error(hello.code(), peer_address() + ": " + hello.error().context);
  }
  const std::lock_guard lock(mutex_);
  hello_ = *hello;
  return hello;
}

void Connector::limit_inbox(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  inbox_limit_ = std::min(bytes, kMaxInboxBytes);
  turn_.notify();  // there may be room now
}

void Connector::limit_messages(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  assembler_.limit(bytes);
}

Result<std::vector<std::byte>> Connector::receive_message(MessageType type, Deadline deadline) {
  auto message = take(type, false, deadline);
  if (!message) return message.error();
  return std::move(message->payload);
}

Result<std::vector<std::byte>> Connector::expect_message(MessageType type, Deadline deadline) {
  auto message = take(type, true, deadline);
  if (!message) return message.error();
  if (message->type == type) return std::move(message->payload);
  Error unexpected = make_error(Errc::kBadMessage, std::string("a message ") + rdmacomm::to_text(message->type) +
                                                       " instead of " + rdmacomm::to_text(type));
  refuse(unexpected);
  unexpected.context = peer_text() + " sent " + unexpected.context;
  return unexpected;
}

Status Connector::sync_with_peer(std::string_view tag, Deadline deadline) {
  if (tag.size() > 255) return make_error(Errc::kInvalidArgument, "a barrier's tag has at most 255 bytes");
  const std::string mine = printable(tag, 255);
  const std::vector<std::byte> payload = BarrierTag{mine}.encode();
  if (enter_barrier(mine)) {
    Status sent = send_message(MessageType::kBarrier, payload, deadline);
    if (!sent) {
      exit_barrier(mine, true);
      return sent;
    }
  }
  Status synced = wait_at_barrier(mine, payload, deadline);
  exit_barrier(mine, synced.ok());
  return synced;
}

/// Whether this call has to send a BARRIER. It need not if an earlier call left one unused.
bool Connector::enter_barrier(const std::string& tag) {
  const std::lock_guard lock(mutex_);
  Barrier& barrier = barriers_[tag];
  if (++barrier.calls <= barrier.sent) return false;
  ++barrier.sent;
  return true;
}

void Connector::exit_barrier(const std::string& tag, bool sent_one_is_used_up) {
  const std::lock_guard lock(mutex_);
  const auto found = barriers_.find(tag);
  --found->second.calls;
  if (sent_one_is_used_up) --found->second.sent;
  if (found->second.calls == 0 && found->second.sent == 0) barriers_.erase(found);
}

/// Takes the peer's BARRIER with that payload out of the inbox.
Status Connector::wait_at_barrier(const std::string& tag, std::span<const std::byte> payload, Deadline deadline) {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (!turn_.taken() && !end_) pump(true);
    const auto found = std::ranges::find_if(inbox_, [&](const Message& each) {
      return each.type == MessageType::kBarrier && std::ranges::equal(each.payload, payload);
    });
    if (found != inbox_.end()) {
      inbox_bytes_ -= found->payload.size();
      inbox_.erase(found);
      turn_.notify();
      return {};
    }
    if (end_) return make_error(end_->code, "at barrier '" + tag + "': " + end_->context);
    if (deadline.passed()) return late_at_barrier(tag);
    wait_for_more(lock, deadline);
  }
}

Error Connector::late_at_barrier(const std::string& tag) const {
  const std::string here = "at barrier '" + tag + "': ";
  for (const Message& each : inbox_) {
    if (each.type != MessageType::kBarrier) continue;
    const auto theirs = BarrierTag::decode(each.payload);
    if (!theirs || barriers_.contains(theirs->text)) continue;
    return make_error(Errc::kWrongState,
                      here + who() + " is at barrier '" + theirs->text + "'; both processes must use the same tag");
  }
  const Error late_one = late("sent no BARRIER in time");
  return make_error(late_one.code, here + late_one.context);
}

PeerState Connector::check_peer() {
  const bool ended = stream_->ended();
  const std::lock_guard lock(mutex_);
  // Only after the end of the stream: if a message were taken here while a receiver sleeps on the stream, it would not
  // wake that receiver. The end does wake it.
  if (ended && !end_) pump(false);
  return peer_state_;
}

PeerState Connector::keep_alive(std::chrono::steady_clock::time_point now, std::chrono::milliseconds silent_after) {
  send_heartbeat();
  {
    const std::lock_guard lock(mutex_);
    // While a receiver sleeps on the stream, that receiver reads the incoming bytes.
    if (!turn_.taken() && !end_) pump(true);
    const auto silent = silence(now, silent_after);
    if (end_ || silent_after.count() == 0 || silent < silent_after) return peer_state_;
    const std::string long_time = duration_text(std::chrono::round<std::chrono::seconds>(silent));
    end(PeerState::kLost,
        make_error(Errc::kPeerLost, "has sent nothing for " + long_time +
                                        ": its process is stopped or hangs, or its host is down or unreachable"));
  }
  // For a process that was stopped and is continued later.
  refuse(make_error(Errc::kPeerLost, "you sent no heartbeat for " + duration_text(silent_after)));
  stream_->shut_down(LastBytes::kDrop);
  return PeerState::kLost;
}

/// For how long nothing has arrived from the peer. The time starts again if this function was not called for long (this
/// process may have been stopped) or if the inbox is full: the cause of the silence is then local.
std::chrono::milliseconds Connector::silence(std::chrono::steady_clock::time_point now,
                                             std::chrono::milliseconds silent_after) {
  const bool looked_lately = looked_at_ && now - *looked_at_ < silent_after;
  if (!looked_lately || bytes_received_ != bytes_seen_ || inbox_full()) last_bytes_at_ = now;
  bytes_seen_ = bytes_received_;
  looked_at_ = now;
  return std::chrono::duration_cast<std::chrono::milliseconds>(now - last_bytes_at_);
}

Status Connector::status() const {
  const std::lock_guard lock(mutex_);
  if (end_) return *end_;
  return {};
}

std::string Connector::peer_text() const {
  const std::lock_guard lock(mutex_);
  return who();
}

std::string Connector::who() const {
  if (!hello_) return peer_address();
  return peer_address() + " (" + hello_->node + ", pid " + std::to_string(hello_->pid) + ")";
}

void Connector::give_up(const Error& reason) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (end_) return;
    peer_state_ = PeerState::kLost;
    end_ = worded_if_possible(reason.code, [&] { return reason; });
    notify_all();
  }
  refuse(reason);
  stream_->shut_down(LastBytes::kDeliver);
}

void Connector::shutdown() noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (!end_) {
      end_ = worded_if_possible(Errc::kStopped, [&] {
        return make_error(Errc::kStopped, "the connection to " + peer_address() + " was shut down locally");
      });
    }
    notify_all();
  }
  stream_->shut_down(LastBytes::kDeliver);
}

// Receiving -----------------------------------------------------------------------------------------------------------

Result<Message> Connector::take(MessageType type, bool must_be_next, Deadline deadline) {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (!turn_.taken() && !end_) pump(true);
    const MessageType wanted = must_be_next && !inbox_.empty() ? inbox_.front().type : type;
    if (auto message = pop(wanted)) return std::move(*message);
    if (end_) return *end_;
    if (deadline.passed()) {
      const char* const cause = type == MessageType::kHello ? ": its process hangs, or it does not use rdmacomm" : "";
      return late(std::string("sent no ") + rdmacomm::to_text(type) + " in time" + cause);
    }
    wait_for_more(lock, deadline);
  }
}

/// Waits until bytes have arrived, the inbox has room, or the deadline has passed.
void Connector::wait_for_more(std::unique_lock<std::mutex>& lock, Deadline deadline) {
  if (turn_.taken() || inbox_full()) {
    turn_.follow(lock, deadline);
  } else {
    turn_.lead(lock, [&] { stream_->await_input(deadline); });
  }
}

/// Moves received messages to the inbox; if `limited`, only up to its limit. This is the only place that allocates
/// memory for a peer's bytes. If the allocation fails, this connection ends, on whichever thread calls this.
void Connector::pump(bool limited) {
  const Status kept = or_out_of_memory([&] {
    receive_all(limited);
    return Status();
  });
  if (kept) return;
  assembler_ = {};  // its content is not needed any more, and the REJECT needs memory
  if (!last_sent_) {
    last_sent_ = true;
    send_last(MessageType::kReject, &kept.error());
  }
  end(PeerState::kLost, worded_if_possible(kept.code(), [&] {
        return make_error(kept.code(), "sent a message for which no memory is left: " + kept.error().context);
      }));
}

void Connector::receive_all(bool limited) {
  while (!end_ && !(limited && inbox_full())) {
    const std::span<std::byte> room = assembler_.room();
    const Transfer got = stream_->receive(room);
    if (got.error) {
      if (got.error != std::errc::operation_would_block) {
        const auto code = got.error == Errc::kDeviceLost ? Errc::kDeviceLost : Errc::kPeerLost;
        end(PeerState::kLost, make_error(code, "the connection failed: " + got.why()));
      }
      return;
    }
    if (got.bytes == 0) {
      end(PeerState::kLost,
          make_error(Errc::kPeerLost, assembler_.in_the_middle()
                                          ? "closed the connection in the middle of a message"
                                          : "closed the connection without notice: its process ended or crashed"));
      return;
    }
    bytes_received_ += got.bytes;
    const Status good = assembler_.filled(got.bytes);
    if (!good) return fail_protocol(good.error());
    if (auto message = assembler_.take()) sort_in(std::move(*message));
  }
}

void Connector::sort_in(Message message) {
  RDMACOMM_VLOG(3) << peer_address() << " sent " << rdmacomm::to_text(message.type) << ", " << message.payload.size()
                   << " bytes";
  if (message.type == MessageType::kHeartbeat) return;
  if (message.type == MessageType::kGoodbye) {
    return end(PeerState::kClosed, make_error(Errc::kPeerClosed, "closed the connection"));
  }
  if (message.type == MessageType::kReject) {
    auto reject = Reject::decode(message.payload);
    if (!reject) return fail_protocol(reject.error());
    const Errc code = reject->code == Errc::kServerBusy ? Errc::kServerBusy : Errc::kPeerRefused;
    return end(PeerState::kLost, make_error(code, "ended the connection: " + reject->reason));
  }
  if (message.type == MessageType::kBarrier) {
    if (const auto tag = BarrierTag::decode(message.payload); !tag) return fail_protocol(tag.error());
  }
  inbox_bytes_ += message.payload.size();
  inbox_.push_back(std::move(message));
  turn_.notify();
}

/// The only place where peer_state_ and end_ change because of the peer. (give_up() and shutdown() have local causes.)
/// The first reason is kept.
void Connector::end(PeerState state, const Error& why) {
  if (end_) return;
  peer_state_ = state;
  end_ = worded_if_possible(why.code, [&] { return make_error(why.code, who() + " " + why.reason()); });
  notify_all();
}

void Connector::fail_protocol(const Error& why) {
  // A client of another protocol would not understand a REJECT, and need not learn which service this is.
  if (assembler_.magic_seen() && !last_sent_) {
    last_sent_ = true;
    send_last(MessageType::kReject, &why);
  }
  end(PeerState::kLost, make_error(why.code, "sent " + why.context));
}

bool Connector::inbox_full() const noexcept {
  return inbox_.size() >= kMaxInboxMessages || inbox_bytes_ >= inbox_limit_;
}

std::optional<Message> Connector::pop(MessageType type) {
  const auto found = std::ranges::find(inbox_, type, &Message::type);
  if (found == inbox_.end()) return {};
  Message message = std::move(*found);
  inbox_.erase(found);
  inbox_bytes_ -= message.payload.size();
  turn_.notify();
  return message;
}

Error Connector::late(std::string_view what) const {
  std::string text = who() + " " + std::string(what);
  if (!inbox_.empty()) text += "; " + std::to_string(inbox_.size()) + " messages of other types wait to be received";
  return make_error(Errc::kTimeout, text);
}

}  // namespace rdmacomm
