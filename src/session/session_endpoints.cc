// SessionCore: from a connection to an endpoint, and out of the lists again.
#include <sys/epoll.h>

#include <algorithm>

#include "base/logging.h"
#include "base/out_of_memory.h"
#include "base/system_call.h"
#include "channel/receive_pool_core.h"
#include "connector/retry.h"
#include "rdmacomm/session.h"
#include "session/session_connectors.h"
#include "session/session_core.h"

namespace rdmacomm {
namespace {

constexpr int kUsualSharedQueueDepth = 4096;

}  // namespace

// Setting up ----------------------------------------------------------------------------------------------------------

Result<std::shared_ptr<EndPointCore>> SessionCore::connect(const HostPort& server) {
  const Deadline reached_by = Deadline::after(options_.tcp.connect_timeout);  // whatever that takes
  if (Status running = ensure_running(server, reached_by); !running) return running.error();
  const InsideThreads::Guard inside(inside_);
  RetryPause pause(reached_by, stop_event_->fd());
  for (;;) {
    auto endpoint = or_out_of_memory([&] { return connect_once(server, reached_by); });
    // The server has heard nothing of this client yet, so nothing is lost by asking again.
    if (endpoint || endpoint.code() != Errc::kServerBusy || pause.passed()) return endpoint;
    if (!pause.sleep()) return make_error(Errc::kStopped, "the session was stopped");
  }
}

Result<std::shared_ptr<EndPointCore>> SessionCore::connect_once(const HostPort& server, Deadline reached_by) {
  /// stop() waits for it, however it ends.
  struct UnderWay {
    SessionCore& core;
    Id id = 0;
    ~UnderWay() {
      if (id == 0) return;
      const std::lock_guard lock(core.mutex_);
      core.setups_.erase(id);
      --core.client_setups_;
      core.changed_.notify_all();
    }
  };
  UnderWay under_way{.core = *this};
  {
    const std::lock_guard lock(mutex_);
    if (state_ != State::kRunning) return make_error(Errc::kStopped, "the session was stopped");
    under_way.id = next_id_++;
    ++client_setups_;
  }
  TcpOptions tcp = options_.tcp;
  tcp.connect_timeout = time_left(reached_by);
  auto connector = connect_to(server, options_.connector, tcp, *device(), stop_event_->fd());
  if (!connector) return connector.error();
  return set_up_client(under_way.id, std::move(*connector));
}

Result<std::shared_ptr<EndPointCore>> SessionCore::set_up_client(Id id, const std::shared_ptr<Connector>& connector) {
  {
    const std::lock_guard lock(mutex_);
    if (state_ != State::kRunning) return make_error(Errc::kStopped, "the session was stopped");
    setups_[id].connector = connector;
  }
  Admission admission;
  auto endpoint = or_out_of_memory([&]() -> Result<std::shared_ptr<EndPointCore>> {
    auto made = setup(admission).as_client(connector);
    if (!made) return made;
    if (Status established = establish(id, *made, admission); !established) return established.error();
    return made;
  });
  if (endpoint) return endpoint;
  const std::lock_guard lock(mutex_);
  give_up_locked(admission);
  return endpoint;
}

/// A thread of its own for each connection: a peer that dawdles holds up nobody. The root of all that the peer's handshake can make
/// this process do: whatever it needs memory for, nothing but this connection ends if there is none.
void SessionCore::set_up_server(Id id, const std::shared_ptr<Connector>& connector) {
  const InsideThreads::Guard inside(inside_);
  Admission admission;
  const Status established = or_out_of_memory([&] {
    admission.source = SourceNetwork::of(connector->peer_address());
    auto endpoint = setup(admission).as_server(connector);
    return endpoint ? establish(id, *endpoint, admission) : endpoint.status();
  });
  if (!established && !stopping()) {
    [[maybe_unused]] const Status told = or_out_of_memory([&] {
      report_failed(connector->peer_text(), established.error());
      return Status();
    });
  }
  const std::lock_guard lock(mutex_);
  give_up_locked(admission);
  if (const auto own = setups_.find(id); own != setups_.end())
    own->second.done = true;  // else join_setups() waits for it
  wake_event_->signal();
}

void SessionCore::end_handshake(const std::string& peer_address, const Error& why) {
  std::shared_ptr<Connector> connector;
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::ranges::find_if(setups_, [&](const auto& each) {
      return each.second.connector && !each.second.done && each.second.connector->peer_address() == peer_address;
    });
    if (found != setups_.end()) connector = found->second.connector;
  }
  if (connector) connector->give_up(why);
}

/// A connection did not become an endpoint.
void SessionCore::report_failed(const std::string& peer, const Error& why) {
  if (hooks_.on_connect_failed(peer, why)) return;
  const bool stranger = why.code == Errc::kBadMessage || why.code == Errc::kTimeout || why.code == Errc::kPeerLost ||
                        why.code == Errc::kPeerClosed;
  if (stranger) {
    RDMACOMM_VLOG(1) << "a connection from " << peer << " came to nothing: " << why.message();
  } else if (const auto others = refusal_pace_.due()) {
    RDMACOMM_LOG(WARNING) << "no endpoint for " << peer << ": " << why.message()
                          << (*others == 0 ? "" : "; and " + std::to_string(*others) + " more lately");
  }
}

EndPointSetup SessionCore::setup(Admission& admission) {
  return {
      .hooks = hooks_,
      .tcp = options_.tcp,
      .device = device(),
      .hello = hello_,
      .admit = [this, &admission] { return admit(admission); },
      .shared_group = [this](const HcaConfig& config) { return shared_group(config); },
      .receive_pool = [this](const HcaConfig& config) { return receive_pool(config); },
      .serve =
          [door = door_](const std::shared_ptr<EndPointCore>& endpoint, const std::shared_ptr<CompletionGroup>& group) {
            const std::lock_guard lock(door->mutex);
            if (door->core == nullptr) return Status(make_error(Errc::kStopped, "the session was stopped"));
            return door->core->serve_group(endpoint, group);
          },
      .enlist = [this](const std::shared_ptr<EndPointCore>& endpoint) { return enlist(endpoint); }};
}

Status SessionCore::admit(Admission& admission) {
  const std::lock_guard lock(mutex_);
  if (Status healthy = device_->events().health(); !healthy) return healthy;
  // A handshake that comes to nothing gives its place back soon.
  const auto none_left = [this](const Places& places, const std::string& whose, const char* bound) {
    return make_error(is_server_ && places.on_their_way > 0 ? Errc::kServerBusy : Errc::kPeerRefused,
                      "there are " + std::to_string(places.taken()) + " endpoints" + whose + " already, as many as " +
                          bound + " allows");
  };
  const Places all{.endpoints = static_cast<int>(endpoints_.size()), .on_their_way = admitted_};
  if (all.taken() >= options_.max_endpoints) return none_left(all, "", "max_endpoints");
  if (is_server_) {
    Places& of_source = places_of_[admission.source];
    if (of_source.taken() >= options_.max_endpoints_per_source) {
      return none_left(of_source, " from this address", "max_endpoints_per_source");
    }
    ++of_source.on_their_way;
  }
  ++admitted_;
  admission.held = true;
  return {};
}

void SessionCore::give_up_locked(Admission& admission) {
  if (!std::exchange(admission.held, false)) return;
  --admitted_;
  if (is_server_) change_places_locked(admission.source, {.on_their_way = -1});
}

void SessionCore::change_places_locked(const SourceNetwork& source, const Places& by) {
  const auto found = places_of_.find(source);
  if (found == places_of_.end()) return;
  Places& places = found->second;
  places.endpoints += by.endpoints;
  places.on_their_way += by.on_their_way;
  if (places.taken() == 0) places_of_.erase(found);
}

/// The queue of the key with the fewest endpoints; a new one where the key may have more and none is free.
Result<std::shared_ptr<CompletionGroup>> SessionCore::shared_group(const HcaConfig& config) {
  if (&host() != this) return host().shared_group(config);
  const std::lock_guard lock(mutex_);
  if (state_ >= State::kStopping) return make_error(Errc::kStopped, "the session was stopped");
  SharedQueues& shared = shared_queues_[config.shared_queue_key];
  if (shared.threads.empty()) return new_shared_group_locked(shared, config);
  if (shared.polling_mode != config.polling_mode || shared.most != config.shared_queues) {
    return make_error(Errc::kInvalidArgument,
                      "the completion queue '" + config.shared_queue_key +
                          "' is in use with another polling_mode or shared_queues; choose another key");
  }
  // An endpoint holds its group, also while it is being set up; and so does the thread.
  const auto users = [](const CompletionThread* thread) { return thread->group().use_count(); };
  const auto least = std::ranges::min_element(shared.threads, {}, users);
  const bool has_all = shared.threads.size() == static_cast<std::size_t>(shared.most);
  if (has_all || users(*least) == 1) return (*least)->group();
  return new_shared_group_locked(shared, config);
}

Result<std::shared_ptr<CompletionGroup>> SessionCore::new_shared_group_locked(SharedQueues& shared,
                                                                              const HcaConfig& config) {
  const int usual = std::min(kUsualSharedQueueDepth, device_->limits().max_cqe);
  auto group = CompletionGroup::create(device_, {.polling_mode = config.polling_mode,
                                                 .waiting = config.waiting,
                                                 .depth = config.shared_queue_depth.value_or(usual),
                                                 .may_grow = !config.shared_queue_depth});
  if (!group) return group.error();
  auto thread = start_thread_locked(std::move(*group), config.threads, shared.threads.size());
  if (!thread) return thread.error();
  shared.polling_mode = config.polling_mode;
  shared.most = config.shared_queues;
  shared.threads.push_back(*thread);
  return (*thread)->group();
}

/// Under the lock, so that a second endpoint of the key waits for it: registering its memory takes a while for the first.
Result<std::shared_ptr<ReceivePoolCore>> SessionCore::receive_pool(const HcaConfig& config) {
  const std::lock_guard lock(mutex_);
  if (state_ >= State::kStopping) return make_error(Errc::kStopped, "the session was stopped");
  const auto found = receive_pools_.find(config.receive_pool_key);
  if (found != receive_pools_.end()) {
    if (found->second->options() == config.receive_pool) return found->second;
    return make_error(Errc::kInvalidArgument, "the receive pool '" + config.receive_pool_key +
                                                  "' is in use with other values; choose another key");
  }
  auto pool = ReceivePoolCore::create(device_, config.receive_pool);
  if (!pool) return pool.error();
  receive_pools_[config.receive_pool_key] = *pool;
  return pool;
}

Result<CompletionThread*> SessionCore::start_thread_locked(std::shared_ptr<CompletionGroup> group,
                                                           const ThreadOptions& options, std::size_t index) {
  // Not make_unique(), to which this object is no Owner.
  std::unique_ptr<CompletionThread> thread(new CompletionThread(std::move(group), *this, serving_));
  if (Status started = thread->start(options, index); !started) return started.error();
  completion_threads_.push_back(std::move(thread));
  return completion_threads_.back().get();
}

Status SessionCore::enlist(const std::shared_ptr<EndPointCore>& endpoint) {
  const HcaConfig& config = endpoint->config();
  if (config.thread_mode == ThreadMode::kApplication) return {};
  if (config.thread_mode == ThreadMode::kThreadPerCompletionQueue) {
    const CompletionThread::Session session{.hooks = hooks_, .owner = *this};
    if (&host() == this) return serve(endpoint, session);
    {
      const std::lock_guard lock(mutex_);
      ++served_elsewhere_;
    }
    Status served = host().serve(endpoint, session);
    if (served) return served;
    const std::lock_guard lock(mutex_);
    --served_elsewhere_;
    return served;
  }
  const std::lock_guard lock(mutex_);
  for (const auto& group : endpoint->served_groups()) {
    if (Status served = serve_group_locked(endpoint, group); !served) return served;
  }
  return {};
}

Status SessionCore::serve_group(const std::shared_ptr<EndPointCore>& endpoint,
                                const std::shared_ptr<CompletionGroup>& group) {
  const std::lock_guard lock(mutex_);
  if (state_ >= State::kStopping) return make_error(Errc::kStopped, "the session was stopped");
  return serve_group_locked(endpoint, group);
}

Status SessionCore::serve_group_locked(const std::shared_ptr<EndPointCore>& endpoint,
                                       const std::shared_ptr<CompletionGroup>& group) {
  const auto thread = start_thread_locked(group, endpoint->config().threads, endpoint_threads_++);
  if (!thread) return thread.error();
  (*thread)->add(endpoint, {.hooks = hooks_, .owner = *this});
  (*thread)->finish();
  return {};
}

/// Has the thread of its completion queue, which is this session's, serve an endpoint of `session`.
Status SessionCore::serve(const std::shared_ptr<EndPointCore>& endpoint, const CompletionThread::Session& session) {
  const std::lock_guard lock(mutex_);
  const std::vector<CompletionThread*>& threads = shared_queues_[endpoint->config().shared_queue_key].threads;
  const auto serving = std::ranges::find(threads, endpoint->group(), &CompletionThread::group);
  if (serving == threads.end()) return make_error(Errc::kStopped, "the session was stopped");
  (*serving)->add(endpoint, session);
  return {};
}

/// Enters an endpoint into the lists, lets it go, and watches it, in that order: on_disconnected can only follow
/// on_established, and finds the endpoint in the lists.
Status SessionCore::establish(Id setup_id, const std::shared_ptr<EndPointCore>& endpoint, Admission& admission) {
  const auto entered = or_out_of_memory([&] { return enter(setup_id, endpoint, admission); });
  if (!entered) {
    end_unestablished(hooks_, endpoint, true, entered.error());
    return entered.status();
  }
  const Id id = *entered;
  bool watched = false;
  const Status let_go = or_out_of_memory([&] { return let_go_of(id, endpoint, watched); });
  if (let_go) return let_go;
  if (!endpoint->was_established()) {
    forget(id);
    end_unestablished(hooks_, endpoint, true, let_go.error());
    return let_go;
  }
  endpoint->stop();
  const bool nobody_ends_it = !watched && endpoint->config().thread_mode == ThreadMode::kApplication;
  if (nobody_ends_it) end_endpoint(id, endpoint);
  return let_go;
}

/// watched  whether the control thread ends it from now on
Status SessionCore::let_go_of(Id id, const std::shared_ptr<EndPointCore>& endpoint, bool& watched) {
  // From here on its end is told to it; what was before that, nobody has told it.
  if (const Status healthy = device()->events().health(); !healthy) endpoint->fail(healthy.error());
  if (Status established = endpoint->mark_established(); !established) return established;
  RDMACOMM_VLOG(1) << "established with " << endpoint->peer();
  if (endpoint->config().thread_mode == ThreadMode::kApplication) hooks_.on_established(endpoint);
  if (Status watching = watch_peer(id, *endpoint); !watching) return watching;
  watched = true;
  return is_server_ ? offer(endpoint) : Status();
}

/// To accept().
Status SessionCore::offer(const std::shared_ptr<EndPointCore>& endpoint) {
  std::vector<std::shared_ptr<EndPointCore>> dropped;
  const std::lock_guard lock(mutex_);
  unclaimed_.push_back(endpoint);
  dropped = prune_unclaimed_locked();
  changed_.notify_all();
  return {};
}

/// Returns  the number under which the endpoint is in the lists; kStopped
Result<SessionCore::Id> SessionCore::enter(Id setup_id, const std::shared_ptr<EndPointCore>& endpoint,
                                           Admission& admission) {
  const std::lock_guard lock(mutex_);
  if (state_ != State::kRunning) return make_error(Errc::kStopped, "the session was stopped");
  const Id id = next_id_++;
  endpoints_[id] = endpoint;
  if (endpoints_.size() == 1) wake_event_->signal();  // heartbeats begin
  setups_[setup_id].connector = nullptr;
  if (std::exchange(admission.held, false)) {
    --admitted_;
    if (is_server_) change_places_locked(admission.source, {.endpoints = 1, .on_their_way = -1});
  }
  return id;
}

Status SessionCore::watch_peer(Id id, EndPointCore& endpoint) {
  const WatchedFd watched = endpoint.connector().watched();
  epoll_event event{};
  event.events = watched.events | EPOLLET;
  event.data.u64 = id;
  // Under the lock, so that an endpoint that has just been forgotten is not watched for ever.
  const std::lock_guard lock(mutex_);
  if (!endpoints_.contains(id)) return {};
  watched_.insert(id);
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, watched.fd, &event) == 0) return {};
  watched_.erase(id);
  return make_error(last_system_error(), "cannot watch the connection to " + endpoint.peer());
}

// Out again -----------------------------------------------------------------------------------------------------------

void SessionCore::forget(Id id) {
  std::vector<std::shared_ptr<EndPointCore>> dropped;  // destroyed, which may take a while, without the lock
  const std::lock_guard lock(mutex_);
  const auto found = endpoints_.find(id);
  if (found == endpoints_.end()) return;
  // Fails where it was not watched yet.
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, found->second->connector().watched().fd, nullptr);
  dropped = prune_unclaimed_locked();
  dropped.reserve(dropped.size() + 1);
  if (is_server_) {
    change_places_locked(SourceNetwork::of(found->second->connector().peer_address()), {.endpoints = -1});
  }
  dropped.push_back(std::move(found->second));
  endpoints_.erase(found);
  watched_.erase(id);
}

/// Nobody need claim what hooks have served; what the application has not polled yet is kept for it, within bounds.
std::vector<std::shared_ptr<EndPointCore>> SessionCore::prune_unclaimed_locked() {
  auto ended = std::ranges::count_if(unclaimed_, [](const auto& endpoint) { return !endpoint->alive(); });
  std::vector<std::shared_ptr<EndPointCore>> dropped;
  dropped.reserve(static_cast<std::size_t>(ended));  // first: without memory for it, all stay in the list
  std::erase_if(unclaimed_, [&](std::shared_ptr<EndPointCore>& endpoint) {
    const bool served = endpoint->config().thread_mode != ThreadMode::kApplication;
    const bool too_many = ended > static_cast<long>(ServerSession::kMaxEndedUnclaimed);
    const bool keep = ended == 0 || endpoint->alive() || !(served || too_many);
    if (keep) return false;
    dropped.push_back(std::move(endpoint));
    --ended;
    return true;
  });
  return dropped;
}

void SessionCore::endpoint_ended(EndPointCore& endpoint) {
  std::optional<Id> id;
  {
    const std::lock_guard lock(mutex_);
    const auto found =
        std::ranges::find_if(endpoints_, [&](const auto& entry) { return entry.second.get() == &endpoint; });
    if (found != endpoints_.end()) id = found->first;
  }
  if (id) forget(*id);
  if (endpoint.config().thread_mode != ThreadMode::kThreadPerCompletionQueue || &host() == this) return;
  // The last touch of this session's, which may be waiting for it: see end_endpoints().
  const std::lock_guard lock(mutex_);
  --served_elsewhere_;
  changed_.notify_all();
}

void SessionCore::completion_thread_ended() {
  wake_event_->signal();
}

}  // namespace rdmacomm
