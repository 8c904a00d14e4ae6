// SessionCore: the control thread.
#include <sys/epoll.h>

#include <array>

#include "base/logging.h"
#include "base/out_of_memory.h"
#include "base/start_thread.h"
#include "base/system_call.h"
#include "connector/socket.h"
#include "session/session_core.h"

namespace rdmacomm {
namespace {

constexpr std::chrono::milliseconds kPause{100};
constexpr int kMaxAcceptsPerTurn = 64;

}  // namespace

void SessionCore::run_control() {
  const InsideThreads::Guard inside(inside_);
  while (!stopping()) {
    const Status taken = or_out_of_memory([&] {
      take_turn();
      return Status();
    });
    if (!taken) rest(taken);
  }
  tear_down();
}

void SessionCore::take_turn() {
  reap();
  settle_handshakes();
  end_failed();
  tell_of_low_pools();
  listen_again();
  std::array<epoll_event, 32> events{};
  const Deadline wake = give_signs_of_life().sooner(pause_.value_or(Deadline::never())).sooner(handshakes_.next_look());
  const int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), wake.poll_timeout_ms());
  for (int i = 0; i < count && !stopping(); ++i) handle(events[static_cast<std::size_t>(i)].data.u64);
}

/// There was no memory for something in a turn. What it had not come to is found again in the next one, by which handshakes may have
/// given some back: for that moment nobody is accepted, and nothing is tried.
void SessionCore::rest(const Status& why) {
  const Status said = or_out_of_memory([&] {
    pause_listening(why);
    return Status();
  });
  if (!said) unwatch_listener();
  (void)wait_for(-1, 0, stop_event_->fd(), Deadline::after(kPause));
}

void SessionCore::handle(Id id) {
  if (id == kWakeId) {
    wake_event_->clear();
    return;
  }
  if (id == kListenerId) return accept_connections();
  if (id == kDeviceId) return device()->events().take();
  end_failed();  // before the peer is heard, who may have lost the same device: this side's own news names it best
  check_endpoint(id);
}

// Accepting -----------------------------------------------------------------------------------------------------------

void SessionCore::accept_connections() {
  // In turns: the ends of endpoints are not to wait for a crowd of connections.
  for (int i = 0; i < kMaxAcceptsPerTurn; ++i) {
    auto accepted = listener_->accept();
    if (accepted && !*accepted) return;
    if (!accepted) {
      if (make_room_to_accept(accepted.status())) continue;
      return pause_listening(accepted.status());
    }
    take_in(std::move(*accepted));
    settle_handshakes();
    if (pause_) return;
    if (handshakes_.full()) return unwatch_listener();
  }
}

/// Without memory for it, the connection is closed.
void SessionCore::take_in(std::shared_ptr<Connector> connector) {
  const auto source = SourceNetwork::of(connector->peer_address());
  const Id id = [&] {
    const std::lock_guard lock(mutex_);
    return next_id_++;
  }();
  const auto place = waiting_.emplace(id, std::move(connector)).first;
  const Status arrived = or_out_of_memory([&] {
    handshakes_.arrive(id, source);
    return Status();
  });
  if (arrived) return;
  waiting_.erase(place);
  pause_listening(arrived);
}

/// If the process is out of descriptors, one of those that wait gives its own up, so that another source has a chance.
bool SessionCore::make_room_to_accept(const Status& failed) {
  if (failed.code() != std::errc::too_many_files_open) return false;
  const auto id = handshakes_.shed();
  if (id) drop_handshake(*id);
  return id.has_value();
}

/// Starts and drops handshakes as handshakes_ decides. Without memory for all of that, the rest comes after a pause.
void SessionCore::settle_handshakes() {
  HandshakeQueue::Decision decision;
  Status settled = or_out_of_memory([&] {
    handshakes_.decide(Deadline::Clock::now(), decision);
    return Status();
  });
  for (const Id id : decision.start) start_handshake(id);
  for (const Id id : decision.drop) {
    const Status dropped = or_out_of_memory([&] {
      drop_handshake(id);
      return Status();
    });
    if (!dropped) settled = dropped;
  }
  if (!settled) pause_listening(settled);
}

void SessionCore::start_handshake(Id id) {
  const std::shared_ptr<Connector> connector = std::move(waiting_.extract(id).mapped());
  const Status started = or_out_of_memory([&]() -> Status {
    const std::lock_guard lock(mutex_);
    if (state_ >= State::kStopping) return make_error(Errc::kStopped, "this side is being stopped");
    Setup& setup = setups_[id];
    setup.connector = connector;
    Status begun =
        start_thread(setup.thread, "rdma-handshake", [this, id, connector] { set_up_server(id, connector); });
    if (!begun) setups_.erase(id);
    return begun;
  });
  if (started) return;
  handshakes_.finished(id);
  if (started.code() == Errc::kStopped) return connector->refuse(started.error());
  // No thread or no memory, for now.
  connector->refuse(
      worded_if_possible(Errc::kServerBusy, [&] { return make_error(Errc::kServerBusy, started.message()); }));
  pause_listening(started);
}

/// The peer is told why: a client whose handshake has not begun tries again.
void SessionCore::drop_handshake(Id id) {
  Error why =
      make_error(Errc::kServerBusy,
                 "more connections wait for a place in the handshake than waiting_handshakes of its SessionOptions");
  std::shared_ptr<Connector> connector;
  if (const auto waiting = waiting_.extract(id)) {
    connector = waiting.mapped();
  } else {
    why = make_error(Errc::kTimeout,
                     "the handshake took longer than handshake_patience, and others waited for its place");
    const std::lock_guard lock(mutex_);
    const auto setup = setups_.find(id);
    if (setup != setups_.end()) connector = setup->second.connector;
  }
  if (!connector) return;  // the handshake has just succeeded
  if (const auto others = drop_pace_.due()) {
    RDMACOMM_LOG(WARNING) << "dropped the connection from " << connector->peer_address()
                          << " before its handshake was complete: more connections than SessionOptions allows"
                          << (*others == 0 ? "" : "; and " + std::to_string(*others) + " more lately");
  }
  connector->give_up(why);
}

/// For those that still wait when the session stops.
void SessionCore::refuse_waiting() {
  for (const auto& [id, connector] : waiting_)
    connector->refuse(make_error(Errc::kStopped, "this side is being stopped"));
  waiting_.clear();
}

/// Connections that arrive now wait in the system's queue.
void SessionCore::pause_listening(const Status& why) {
  if (const auto others = pause_pace_.due()) {
    RDMACOMM_LOG(WARNING) << "accepting nobody for " << kPause.count() << " ms: " << why.message()
                          << (*others == 0 ? "" : "; and " + std::to_string(*others) + " times more lately");
  }
  pause_ = Deadline::after(kPause);
  unwatch_listener();
}

void SessionCore::unwatch_listener() {
  if (!std::exchange(listening_, false)) return;
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, listener_->fd(), nullptr);
}

void SessionCore::listen_again() {
  if (pause_ && !pause_->passed()) return;
  pause_.reset();
  if (listening_ || !listener_ || handshakes_.full()) return;
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kListenerId;
  listening_ = epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, listener_->fd(), &event) == 0;
  if (!listening_) pause_listening(make_error(last_system_error(), "cannot watch the listening socket"));
}

// Watching ------------------------------------------------------------------------------------------------------------

void SessionCore::check_endpoint(Id id) {
  std::shared_ptr<EndPointCore> endpoint;
  {
    const std::lock_guard lock(mutex_);
    const auto found = endpoints_.find(id);
    if (found == endpoints_.end()) return;
    endpoint = found->second;
  }
  endpoint->check_connection();
  end_if_over(id, endpoint);
}

/// When the next ones are due: never, where there is nobody to give them to.
Deadline SessionCore::give_signs_of_life() {
  if (!heartbeat_.passed()) return heartbeat_;
  std::map<Id, std::shared_ptr<EndPointCore>> endpoints;
  std::set<Id> watched;
  {
    const std::lock_guard lock(mutex_);
    endpoints = endpoints_;
    watched = watched_;
  }
  if (endpoints.empty()) return Deadline::never();
  device()->events().take();  // not every driver tells by an event that the device is gone
  end_failed();
  const auto now = Deadline::Clock::now();
  for (const auto& [id, endpoint] : endpoints) {
    if (endpoint->setting_up()) continue;
    endpoint->keep_alive(now, options_.silent_peer_after);
    if (watched.contains(id)) end_if_over(id, endpoint);
  }
  heartbeat_ = Deadline::at(now + Connector::kHeartbeatPeriod);
  return heartbeat_;
}

void SessionCore::end_if_over(Id id, const std::shared_ptr<EndPointCore>& endpoint) {
  if (endpoint->alive() || endpoint->config().thread_mode != ThreadMode::kApplication) return;
  end_endpoint(id, endpoint);
}

void SessionCore::end_endpoint(Id id, const std::shared_ptr<EndPointCore>& endpoint) {
  forget(id);
  RDMACOMM_VLOG(1) << "ended: " << endpoint->peer();
  hooks_.on_disconnected(endpoint, endpoint->outcome());
}

/// Joins the threads that have ended.
void SessionCore::reap() {
  std::map<Id, Setup> setups;
  std::list<std::unique_ptr<CompletionThread>> completion_threads;
  {
    const std::lock_guard lock(mutex_);
    for (auto each = setups_.begin(); each != setups_.end();) {
      const auto next = std::next(each);
      if (each->second.done) {
        handshakes_.finished(each->first);
        setups.insert(setups_.extract(each));
      }
      each = next;
    }
    for (auto each = completion_threads_.begin(); each != completion_threads_.end();) {
      const auto next = std::next(each);
      if ((*each)->ended()) completion_threads.splice(completion_threads.end(), completion_threads_, each);
      each = next;
    }
  }
  for (auto& [id, setup] : setups) setup.thread.join();
}

// The end -------------------------------------------------------------------------------------------------------------

void SessionCore::tear_down() {
  stop_listening();
  refuse_waiting();
  join_setups();
  end_endpoints();
  std::deque<std::shared_ptr<EndPointCore>> unclaimed;
  std::vector<Failed> failed;
  const std::lock_guard lock(mutex_);
  unclaimed.swap(unclaimed_);
  failed.swap(failed_);
  receive_pools_.clear();
  move_to(State::kStopped);
}

/// Whoever has stopped the session has ended them.
void SessionCore::join_setups() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return client_setups_ == 0; });
  std::map<Id, Setup> setups;
  setups.swap(setups_);
  lock.unlock();
  for (auto& [id, setup] : setups) setup.thread.join();
}

void SessionCore::end_endpoints() {
  std::map<Id, std::shared_ptr<EndPointCore>> endpoints;
  std::list<std::unique_ptr<CompletionThread>> completion_threads;
  {
    const std::lock_guard lock(mutex_);
    endpoints = endpoints_;
    completion_threads.swap(completion_threads_);
    shared_queues_.clear();
  }
  for (const auto& [id, endpoint] : endpoints) {
    endpoint->stop();
    if (endpoint->config().thread_mode == ThreadMode::kApplication) end_endpoint(id, endpoint);
  }
  // The others' hooks come from their threads, whose destructors wait for the last one.
  for (const auto& thread : completion_threads) thread->end();
  completion_threads.clear();
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return served_elsewhere_ == 0; });
}

}  // namespace rdmacomm
