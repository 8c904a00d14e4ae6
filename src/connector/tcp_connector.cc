#include "rdmacomm/connector/tcp_connector.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>

#include "connector/socket.h"
#include "rdmacomm/base/log.h"
#include "rdmacomm/base/system_call.h"
#include "rdmacomm/base/wire.h"
#include "rdmacomm/verbs/call.h"

namespace rdmacomm {
namespace {

Result<std::string> decode_tag(std::span<const std::byte> payload) {
  WireReader reader(payload);
  std::string tag = printable(reader.get_text(), 255);
  if (!reader.ok() || reader.remaining() > 0) return make_error(Errc::kBadMessage, "a BARRIER without a proper tag");
  return tag;
}

}  // namespace

TCPConnector::TCPConnector(UniqueFd socket) : socket_(std::move(socket)) {}

Result<std::unique_ptr<TCPConnector>> TCPConnector::adopt(UniqueFd socket, const TcpOptions& options) {
  const Status set = set_up_socket(socket.get(), options);
  if (!set) return set.error();
  auto local = SocketAddress::of_local_end(socket.get());
  if (!local) return local.error();
  auto peer = SocketAddress::of_peer(socket.get());
  if (!peer) return peer.error();
  std::unique_ptr<TCPConnector> connector(new TCPConnector(std::move(socket)));
  connector->local_address_ = local->to_text();
  connector->peer_address_ = peer->to_text();
  connector->local_gid_ = local->as_gid();
  return connector;
}

Result<Hello> TCPConnector::exchange_hello(const Hello& mine, Deadline deadline) {
  const Status sent = send_message(MessageType::kHello, mine.encode(), deadline);
  if (!sent) return sent.error();
  auto payload = expect_message(MessageType::kHello, deadline);
  if (!payload) return payload.error();
  auto hello = Hello::decode(*payload);
  if (!hello) {
    refuse(hello.error());
    return make_error(hello.code(), peer_address_ + ": " + hello.error().context);
  }
  const std::lock_guard lock(mutex_);
  hello_ = *hello;
  return hello;
}

Result<std::vector<std::byte>> TCPConnector::receive_message(MessageType type, Deadline deadline) {
  auto message = take(type, false, deadline);
  if (!message) return message.error();
  return std::move(message->payload);
}

Result<std::vector<std::byte>> TCPConnector::expect_message(MessageType type, Deadline deadline) {
  auto message = take(type, true, deadline);
  if (!message) return message.error();
  if (message->type == type) return std::move(message->payload);
  Error unexpected = make_error(Errc::kBadMessage, std::string("a ") + rdmacomm::to_text(message->type) + " where a " +
                                                       rdmacomm::to_text(type) + " belongs");
  refuse(unexpected);
  unexpected.context = peer_text() + " sent " + unexpected.context;
  return unexpected;
}

Status TCPConnector::sync_with_peer(std::string_view tag, Deadline deadline) {
  if (tag.size() > 255) return make_error(Errc::kInvalidArgument, "a barrier's tag has at most 255 bytes");
  const std::string mine = printable(tag, 255);
  if (barrier_sent_ != mine) {
    if (barrier_sent_) {
      return make_error(Errc::kWrongState,
                        "this side still waits at barrier '" + *barrier_sent_ + "', not at '" + mine + "'");
    }
    WireWriter writer;
    writer.put_text(mine);
    Status sent = send_message(MessageType::kBarrier, writer.bytes(), deadline);
    if (!sent) return sent;
    barrier_sent_ = mine;
  }
  auto payload = receive_message(MessageType::kBarrier, deadline);
  if (!payload) return make_error(payload.code(), "at barrier '" + mine + "': " + payload.error().context);
  barrier_sent_.reset();
  auto theirs = decode_tag(*payload);
  if (!theirs) return make_error(theirs.code(), peer_text() + " sent " + theirs.error().context);
  if (*theirs == mine) return {};
  return make_error(Errc::kWrongState,
                    "this side is at barrier '" + mine + "', " + peer_text() + " at '" + *theirs + "'");
}

PeerState TCPConnector::check_peer() {
  pollfd asked = {socket_.get(), POLLRDHUP, 0};
  const bool ended = ::poll(&asked, 1, 0) > 0;
  const std::lock_guard lock(mutex_);
  // Only at the end: a message taken away here from under a receiver that sleeps on the socket would not wake it.
  // The end itself does.
  if (ended && !end_) pump(false);
  return peer_state_;
}

Status TCPConnector::status() const {
  const std::lock_guard lock(mutex_);
  if (end_) return *end_;
  return {};
}

std::string TCPConnector::peer_text() const {
  const std::lock_guard lock(mutex_);
  return who();
}

std::string TCPConnector::who() const {
  if (!hello_) return peer_address_;
  return peer_address_ + " (" + hello_->node + ", pid " + std::to_string(hello_->pid) + ")";
}

void TCPConnector::shutdown() noexcept {
  const std::lock_guard lock(mutex_);
  if (!end_) end_ = make_error(Errc::kStopped, "the connection to " + peer_address_ + " was shut down on this side");
  // Wakes who polls the socket; the descriptor stays open until the destructor, so no wait can hit a stranger's.
  ::shutdown(socket_.get(), SHUT_RDWR);
  changed_.notify_all();
}

// Receiving -----------------------------------------------------------------------------------------------------------

Result<Message> TCPConnector::take(MessageType type, bool must_be_next, Deadline deadline) {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (!reading_ && !end_) pump(true);
    const MessageType wanted = must_be_next && !inbox_.empty() ? inbox_.front().type : type;
    if (auto message = pop(wanted)) return std::move(*message);
    if (end_) return *end_;
    if (deadline.passed()) return late(std::string("sent no ") + rdmacomm::to_text(type) + " in time");
    wait_for_more(lock, deadline);
  }
}

/// One receiver sleeps on the socket and moves what comes to the inbox, for all; the others sleep on changed_. If
/// each slept on the socket, the one that reads a message meant for another would leave that one asleep.
void TCPConnector::wait_for_more(std::unique_lock<std::mutex>& lock, Deadline deadline) {
  if (reading_ || inbox_full()) {
    if (deadline.is_never()) {
      changed_.wait(lock);
    } else {
      changed_.wait_until(lock, deadline.time_point());
    }
    return;
  }
  reading_ = true;
  lock.unlock();
  [[maybe_unused]] const Waited waited = wait_for(socket_.get(), POLLIN, -1, deadline);
  lock.lock();
  reading_ = false;
  changed_.notify_all();
}

/// Moves what has arrived to the inbox, as far as it may go when `limited`.
void TCPConnector::pump(bool limited) {
  while (!end_ && !(limited && inbox_full())) {
    const std::span<std::byte> room = assembler_.room();
    const ssize_t got =
        retry_interrupted([&] { return ::recv(socket_.get(), room.data(), room.size(), MSG_DONTWAIT); });
    if (got < 0) {
      const std::error_code why = last_system_error();
      if (why != std::errc::operation_would_block) {
        end(PeerState::kLost, make_error(Errc::kPeerLost, "the connection failed: " + why.message()));
      }
      return;
    }
    if (got == 0) {
      end(PeerState::kLost,
          make_error(Errc::kPeerLost, assembler_.in_the_middle()
                                          ? "closed the connection in the middle of a message"
                                          : "closed the connection without a goodbye: it ended or crashed"));
      return;
    }
    const Status good = assembler_.filled(static_cast<std::size_t>(got));
    if (!good) return fail_protocol(good.error());
    if (auto message = assembler_.take()) sort_in(std::move(*message));
  }
}

void TCPConnector::sort_in(Message message) {
  RDMACOMM_VLOG(3) << peer_address_ << " sent " << rdmacomm::to_text(message.type) << ", " << message.payload.size()
                   << " bytes";
  if (message.type == MessageType::kGoodbye) {
    return end(PeerState::kLeft, make_error(Errc::kPeerLost, "said goodbye"));
  }
  if (message.type == MessageType::kReject) {
    auto reject = Reject::decode(message.payload);
    if (!reject) return fail_protocol(reject.error());
    return end(PeerState::kLost, make_error(Errc::kPeerRefused, "says: " + reject->reason));
  }
  inbox_bytes_ += message.payload.size();
  inbox_.push_back(std::move(message));
  changed_.notify_all();
}

/// The only place where peer_state_ and end_ change because of the peer. The first reason stays.
void TCPConnector::end(PeerState state, const Error& why) {
  if (end_) return;
  peer_state_ = state;
  end_ = make_error(why.code, who() + " " + why.context);
  changed_.notify_all();
}

void TCPConnector::fail_protocol(const Error& why) {
  // A stranger that speaks another protocol would not understand, and need not know what listens here.
  if (assembler_.magic_seen() && !last_sent_) {
    last_sent_ = true;
    send_last(MessageType::kReject, Reject::of(why).encode());
  }
  end(PeerState::kLost, make_error(why.code, "sent " + why.context));
}

bool TCPConnector::inbox_full() const noexcept {
  return inbox_.size() >= kMaxInboxMessages || inbox_bytes_ >= kMaxInboxBytes;
}

std::optional<Message> TCPConnector::pop(MessageType type) {
  const auto found = std::ranges::find(inbox_, type, &Message::type);
  if (found == inbox_.end()) return {};
  Message message = std::move(*found);
  inbox_.erase(found);
  inbox_bytes_ -= message.payload.size();
  changed_.notify_all();
  return message;
}

Error TCPConnector::late(std::string_view what) const {
  std::string text = who() + " " + std::string(what);
  if (!inbox_.empty()) text += "; " + std::to_string(inbox_.size()) + " messages of other types wait to be received";
  return make_error(Errc::kTimeout, text);
}

}  // namespace rdmacomm
