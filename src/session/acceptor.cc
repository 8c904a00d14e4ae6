#include "session/acceptor.h"

#include <sys/epoll.h>

#include <random>
#include <string>
#include <utility>

#include "base/logging.h"
#include "base/out_of_memory.h"
#include "session/session_connectors.h"
#include "session/stopped_error.h"

namespace rdmacomm {
namespace {

constexpr std::chrono::milliseconds kPause{100};
constexpr int kMaxAcceptsPerTurn = 64;

HandshakeQueue::Bounds handshake_bounds(const SessionOptions& options) {
  return {.slots = options.handshake_slots,
          .per_source = options.handshakes_per_source,
          .waiting = options.waiting_handshakes,
          .patience = options.handshake_patience};
}

/// Random, so that clients cannot predict which connection is dropped. The numbers protect nothing else.
HandshakeQueue::Random random_choice() {
  return [engine = std::make_shared<std::mt19937_64>(std::random_device{}())](std::size_t below) {
    return std::uniform_int_distribution<std::size_t>(0, below - 1)(*engine);
  };
}

}  // namespace

Acceptor::Acceptor(const SessionOptions& options, ControlLoop& loop, ControlLoop::Id listener_id,
                   Handshakes& handshakes, SetUp set_up)
    : options_(options),
      loop_(loop),
      listener_id_(listener_id),
      handshakes_(handshakes),
      set_up_(std::move(set_up)),
      queue_(handshake_bounds(options), random_choice()) {}

Status Acceptor::open(const DeviceCore& device, const FindBy& find_by) {
  auto listener = listen_for(options_, device, find_by);
  if (!listener) return listener.status();
  listener_ = std::move(*listener);
  port_.store(listener_->port(), std::memory_order_relaxed);
  return {};
}

void Acceptor::close() {
  listening_ = false;
  listener_.reset();
  port_.store(0, std::memory_order_relaxed);
}

// Arriving connections ------------------------------------------------------------------------------------------------

void Acceptor::accept_connections() {
  // Limited, because the ends of endpoints must not wait for a large number of connections.
  for (int i = 0; i < kMaxAcceptsPerTurn; ++i) {
    auto accepted = listener_->accept();
    if (accepted && !*accepted) return;
    if (!accepted) {
      if (make_room(accepted.status())) continue;
      return pause(accepted.status());
    }
    take_in(std::move(*accepted));
    settle();
    if (pause_) return;
    if (queue_.full()) return unwatch();
  }
}

/// If there is no memory for the connection, it is closed.
void Acceptor::take_in(std::shared_ptr<Connector> connector) {
  const auto source = SourceNetwork::of(connector->peer_address());
  const Id id = handshakes_.next_id();
  const auto place = waiting_.emplace(id, std::move(connector)).first;
  const Status arrived = or_out_of_memory([&] {
    queue_.arrive(id, source);
    return Status();
  });
  if (arrived) return;
  waiting_.erase(place);
  pause(arrived);
}

/// If the process has run out of descriptors, a waiting connection is dropped, so that another source can connect.
bool Acceptor::make_room(const Status& failed) {
  if (failed.code() != std::errc::too_many_files_open) return false;
  const auto id = queue_.shed();
  if (id) drop(*id);
  return id.has_value();
}

// Handshakes ----------------------------------------------------------------------------------------------------------

void Acceptor::take_turn() {
  handshakes_.join_finished([this](Id id) { queue_.finished(id); });
  settle();
  listen_again();
}

/// Starts and drops connections as queue_ decides. If memory runs out, the rest follows after a pause.
void Acceptor::settle() {
  HandshakeQueue::Decision decision;
  Status settled = or_out_of_memory([&] {
    queue_.decide(Deadline::Clock::now(), decision);
    return Status();
  });
  for (const Id id : decision.start) start(id);
  for (const Id id : decision.drop) {
    const Status dropped = or_out_of_memory([&] {
      drop(id);
      return Status();
    });
    if (!dropped) settled = dropped;
  }
  if (!settled) pause(settled);
}

void Acceptor::start(Id id) {
  const std::shared_ptr<Connector> connector = std::move(waiting_.extract(id).mapped());
  const Status started = or_out_of_memory(
      [&] { return handshakes_.start(id, connector, [this, id, connector] { set_up_(id, connector); }); });
  if (started) return;
  queue_.finished(id);
  if (started.code() == Errc::kStopped) return connector->refuse(being_stopped_error());
  // No thread or no memory at the moment.
  connector->refuse(
      worded_if_possible(Errc::kServerBusy, [&] { return make_error(Errc::kServerBusy, started.message()); }));
  pause(started);
}

/// The peer is told the reason. A client whose handshake has not begun tries again.
void Acceptor::drop(Id id) {
  Error why = make_error(
      Errc::kServerBusy,
      "too many connections wait for their handshake; the limit is waiting_handshakes in the server's SessionOptions");
  std::shared_ptr<Connector> connector;
  if (const auto waiting = waiting_.extract(id)) {
    connector = waiting.mapped();
  } else {
    why = make_error(Errc::kTimeout, "the handshake took longer than handshake_patience, and other connections waited");
    connector = handshakes_.connector(id);
  }
  if (!connector) return;  // the handshake has just succeeded
  if (const auto others = drop_pace_.due()) {
    RDMACOMM_LOG(WARNING) << "dropped the connection from " << connector->peer_address()
                          << " before its handshake was complete: too many connections "
                             "(SessionOptions::waiting_handshakes and handshake_patience)"
                          << (*others == 0 ? ""
                                           : "; and " + std::to_string(*others) + " more since the last such warning");
  }
  connector->give_up(why);
}

void Acceptor::refuse_waiting() {
  for (const auto& [id, connector] : waiting_) connector->refuse(being_stopped_error());
  waiting_.clear();
}

// Pauses --------------------------------------------------------------------------------------------------------------

void Acceptor::pause(const Status& why) {
  if (const auto others = pause_pace_.due()) {
    RDMACOMM_LOG(WARNING) << "accepting no connections for " << kPause.count() << " ms: " << why.message()
                          << (*others == 0
                                  ? ""
                                  : "; and " + std::to_string(*others) + " more times since the last such warning");
  }
  pause_silently();
}

void Acceptor::pause_silently() {
  pause_ = Deadline::after(kPause);
  unwatch();
}

void Acceptor::unwatch() {
  if (std::exchange(listening_, false)) loop_.unwatch(listener_->fd());
}

void Acceptor::listen_again() {
  if (pause_ && !pause_->passed()) return;
  pause_.reset();
  if (listening_ || !listener_ || queue_.full()) return;
  const Status watching = loop_.watch(listener_->fd(), EPOLLIN, listener_id_, "the listening socket");
  listening_ = watching.ok();
  if (!watching) pause(watching);
}

}  // namespace rdmacomm
