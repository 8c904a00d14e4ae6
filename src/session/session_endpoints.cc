// SessionCore: from a connection to an endpoint, and out of the lists again.
#include <sys/epoll.h>

#include <algorithm>

#include "rdmacomm/base/log.h"
#include "rdmacomm/base/system_call.h"
#include "rdmacomm/session/server_session.h"
#include "session/session_connectors.h"
#include "session/session_core.h"

namespace rdmacomm {

// Setting up ----------------------------------------------------------------------------------------------------------

Result<std::shared_ptr<EndPoint>> SessionCore::connect(const HostPort& server) {
  if (Status running = ensure_running(server); !running) return running.error();
  const InsideThreads::Guard inside(inside_);
  Id id = 0;
  {
    const std::lock_guard lock(mutex_);
    if (state_ != State::kRunning) return make_error(Errc::kStopped, "the session was stopped");
    id = next_id_++;
    ++client_setups_;
  }
  auto endpoint = [&]() -> Result<std::shared_ptr<EndPoint>> {
    auto connector = connect_to(server, options_, *device(), stop_event_->fd());
    if (!connector) return connector.error();
    return set_up_client(id, std::move(*connector));
  }();
  const std::lock_guard lock(mutex_);
  setups_.erase(id);
  --client_setups_;
  changed_.notify_all();
  return endpoint;
}

Result<std::shared_ptr<EndPoint>> SessionCore::set_up_client(Id id, const std::shared_ptr<Connector>& connector) {
  {
    const std::lock_guard lock(mutex_);
    if (state_ != State::kRunning) return make_error(Errc::kStopped, "the session was stopped");
    setups_[id].connector = connector;
  }
  bool admitted = false;
  auto endpoint = setup(admitted).as_client(connector);
  const Status established = endpoint ? establish(id, *endpoint, admitted) : endpoint.status();
  if (established) return endpoint;
  const std::lock_guard lock(mutex_);
  if (admitted) --admitted_;
  return established.error();
}

/// A thread of its own for each connection: a peer that dawdles holds up nobody.
void SessionCore::set_up_server(Id id, const std::shared_ptr<Connector>& connector) {
  const InsideThreads::Guard inside(inside_);
  bool admitted = false;
  auto endpoint = setup(admitted).as_server(connector);
  const Status established = endpoint ? establish(id, *endpoint, admitted) : endpoint.status();
  if (!established && !stopping()) hooks_.on_connect_failed(connector->peer_text(), established.error());
  const std::lock_guard lock(mutex_);
  if (admitted) --admitted_;
  setups_[id].done = true;
  wake_event_->signal();
}

EndPointSetup SessionCore::setup(bool& admitted) {
  return {.hooks = hooks_,
          .tcp = options_.tcp,
          .device = device(),
          .hello = hello_,
          .admit = [this, &admitted] { return admit(admitted); },
          .shared_group = [this](const HcaConfig& config) { return shared_group(config); },
          .enlist = [this](const std::shared_ptr<EndPoint>& endpoint) { return enlist(endpoint); }};
}

Status SessionCore::admit(bool& admitted) {
  const std::lock_guard lock(mutex_);
  if (Status healthy = device_->events().health(); !healthy) return healthy;
  const std::size_t count = endpoints_.size() + static_cast<std::size_t>(admitted_);
  if (count >= static_cast<std::size_t>(options_.max_endpoints)) {
    return make_error(Errc::kPeerRefused,
                      "there are " + std::to_string(count) + " endpoints already, as many as max_endpoints allows");
  }
  ++admitted_;
  admitted = true;
  return {};
}

Result<std::shared_ptr<CompletionGroup>> SessionCore::shared_group(const HcaConfig& config) {
  const std::lock_guard lock(mutex_);
  if (state_ >= State::kStopping) return make_error(Errc::kStopped, "the session was stopped");
  const auto found = shared_threads_.find(config.shared_queue_key);
  if (found != shared_threads_.end()) {
    if (found->second->group()->mode() == config.polling_mode) return found->second->group();
    return make_error(Errc::kInvalidArgument, "the completion queue '" + config.shared_queue_key +
                                                  "' is in use with another polling_mode; choose another key");
  }
  auto group = CompletionGroup::create(device_, config.polling_mode, *config.shared_queue_depth);
  if (!group) return group.error();
  CompletionThread& thread = new_completion_thread_locked(std::move(*group));
  if (Status started = thread.start(); !started) {
    completion_threads_.pop_back();
    return started.error();
  }
  shared_threads_[config.shared_queue_key] = &thread;
  return thread.group();
}

CompletionThread& SessionCore::new_completion_thread_locked(std::shared_ptr<CompletionGroup> group) {
  completion_threads_.emplace_back(new CompletionThread(std::move(group), hooks_, *this, inside_));
  return *completion_threads_.back();
}

Status SessionCore::enlist(const std::shared_ptr<EndPoint>& endpoint) {
  const HcaConfig& config = endpoint->config();
  if (config.thread_mode == ThreadMode::kApplication) return {};
  const std::lock_guard lock(mutex_);
  if (config.thread_mode == ThreadMode::kThreadPerCompletionQueue) {
    const auto found = shared_threads_.find(config.shared_queue_key);
    if (found == shared_threads_.end()) return make_error(Errc::kStopped, "the session was stopped");
    found->second->add(endpoint);
    return {};
  }
  CompletionThread& thread = new_completion_thread_locked(endpoint->group());
  if (Status started = thread.start(); !started) {
    completion_threads_.pop_back();
    return started;
  }
  thread.add(endpoint);
  thread.finish();
  return {};
}

/// Enters an endpoint into the lists, lets it go, and watches it, in that order: on_disconnected can only follow
/// on_established, and finds the endpoint in the lists.
Status SessionCore::establish(Id setup_id, const std::shared_ptr<EndPoint>& endpoint, bool& admitted) {
  const Id id = enter(setup_id, endpoint, admitted);
  if (id == kWakeId) {
    endpoint->stop();
    return make_error(Errc::kStopped, "the session was stopped");
  }
  // From here on its end is told to it; what was before that, nobody has told it.
  if (const Status healthy = device()->events().health(); !healthy) endpoint->fail(healthy.error());
  if (Status established = endpoint->mark_established(); !established) {
    forget(id);
    return established;
  }
  RDMACOMM_VLOG(1) << "established with " << endpoint->peer();
  const bool driven_by_application = endpoint->config().thread_mode == ThreadMode::kApplication;
  if (driven_by_application) hooks_.on_established(*endpoint);
  if (Status watched = watch_peer(id, *endpoint); !watched) {
    endpoint->stop();
    if (driven_by_application) end_endpoint(id, endpoint);
    return watched;
  }
  if (!is_server_) return {};
  std::vector<std::shared_ptr<EndPoint>> dropped;
  const std::lock_guard lock(mutex_);
  unclaimed_.push_back(endpoint);
  dropped = prune_unclaimed_locked();
  changed_.notify_all();
  return {};
}

/// The number under which the endpoint is in the lists; kWakeId, which is none, where the session was stopped.
SessionCore::Id SessionCore::enter(Id setup_id, const std::shared_ptr<EndPoint>& endpoint, bool& admitted) {
  const std::lock_guard lock(mutex_);
  if (state_ != State::kRunning) return kWakeId;
  const Id id = next_id_++;
  endpoints_[id] = endpoint;
  if (endpoints_.size() == 1) wake_event_->signal();  // heartbeats begin
  setups_[setup_id].connector = nullptr;
  if (admitted) --admitted_;
  admitted = false;
  return id;
}

Status SessionCore::watch_peer(Id id, EndPoint& endpoint) {
  const WatchedFd watched = endpoint.connector().watched();
  epoll_event event{};
  event.events = watched.events | EPOLLET;
  event.data.u64 = id;
  // Under the lock, so that an endpoint that has just been forgotten is not watched for ever.
  const std::lock_guard lock(mutex_);
  if (!endpoints_.contains(id)) return {};
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, watched.fd, &event) != 0) {
    return make_error(last_system_error(), "cannot watch the connection to " + endpoint.peer());
  }
  watched_.insert(id);
  return {};
}

// Out again -----------------------------------------------------------------------------------------------------------

void SessionCore::forget(Id id) {
  std::vector<std::shared_ptr<EndPoint>> dropped;  // destroyed, which may take a while, without the lock
  const std::lock_guard lock(mutex_);
  const auto found = endpoints_.find(id);
  if (found == endpoints_.end()) return;
  // Fails where it was not watched yet.
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, found->second->connector().watched().fd, nullptr);
  dropped = prune_unclaimed_locked();
  dropped.push_back(std::move(found->second));
  endpoints_.erase(found);
  watched_.erase(id);
}

/// Nobody need claim what hooks have served; what the application has not polled yet is kept for it, within bounds.
std::vector<std::shared_ptr<EndPoint>> SessionCore::prune_unclaimed_locked() {
  auto ended = std::ranges::count_if(unclaimed_, [](const auto& endpoint) { return !endpoint->alive(); });
  std::vector<std::shared_ptr<EndPoint>> dropped;
  std::deque<std::shared_ptr<EndPoint>> kept;
  for (std::shared_ptr<EndPoint>& endpoint : unclaimed_) {
    const bool served = endpoint->config().thread_mode != ThreadMode::kApplication;
    const bool too_many = ended > static_cast<long>(ServerSession::kMaxEndedUnclaimed);
    if (endpoint->alive() || !(served || too_many)) {
      kept.push_back(std::move(endpoint));
    } else {
      dropped.push_back(std::move(endpoint));
      --ended;
    }
  }
  unclaimed_.swap(kept);
  return dropped;
}

void SessionCore::endpoint_ended(EndPoint& endpoint) {
  std::optional<Id> id;
  {
    const std::lock_guard lock(mutex_);
    const auto found =
        std::ranges::find_if(endpoints_, [&](const auto& entry) { return entry.second.get() == &endpoint; });
    if (found != endpoints_.end()) id = found->first;
  }
  if (id) forget(*id);
}

void SessionCore::completion_thread_ended() {
  wake_event_->signal();
}

}  // namespace rdmacomm
