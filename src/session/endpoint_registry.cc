#include "session/endpoint_registry.h"

#include <sys/epoll.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/out_of_memory.h"
#include "base/wait.h"
#include "connector/connector.h"
#include "session/stopped_error.h"

namespace rdmacomm {

// Endpoints that are being set up -------------------------------------------------------------------------------------

Status EndPointRegistry::admit(Admission& admission) {
  const std::lock_guard lock(mutex_);
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

/// kServerBusy if handshakes hold places: if one fails, its place is soon free, so the client may try again.
Error EndPointRegistry::none_left(const Places& places, const std::string& whose, const char* bound) const {
  return make_error(is_server_ && places.on_their_way > 0 ? Errc::kServerBusy : Errc::kPeerRefused,
                    "the session already has " + std::to_string(places.taken()) + " endpoints" + whose + ", and its " +
                        bound + " allows no more");
}

void EndPointRegistry::give_up(Admission& admission) {
  const std::lock_guard lock(mutex_);
  if (!std::exchange(admission.held, false)) return;
  --admitted_;
  if (is_server_) change_places_locked(admission.source, {.on_their_way = -1});
}

void EndPointRegistry::change_places_locked(const SourceNetwork& source, const Places& by) {
  const auto found = places_of_.find(source);
  if (found == places_of_.end()) return;
  Places& places = found->second;
  places.endpoints += by.endpoints;
  places.on_their_way += by.on_their_way;
  if (places.taken() == 0) places_of_.erase(found);
}

Result<EndPointRegistry::Id> EndPointRegistry::enter(const std::shared_ptr<EndPointCore>& endpoint,
                                                     Admission& admission) {
  const std::lock_guard lock(mutex_);
  if (closed_) return stopped_error();
  const Id id = next_id_++;
  endpoints_[id] = {.endpoint = endpoint, .source = admission.source};
  if (endpoints_.size() == 1) loop_.wake();  // starts the heartbeats
  if (std::exchange(admission.held, false)) {
    --admitted_;
    if (is_server_) change_places_locked(admission.source, {.endpoints = 1, .on_their_way = -1});
  }
  return id;
}

/// Holds the lock, so that an endpoint that was just forgotten does not stay watched forever.
Status EndPointRegistry::watch(Id id, const EndPointCore& endpoint) {
  const WatchedFd watched = endpoint.connector().watched();
  const std::string what = "the connection to " + endpoint.peer();
  const std::lock_guard lock(mutex_);
  const auto found = endpoints_.find(id);
  if (found == endpoints_.end()) return {};
  Status watching = loop_.watch(watched.fd, watched.events | EPOLLET, id, what);
  found->second.watched = watching.ok();
  return watching;
}

// All endpoints -------------------------------------------------------------------------------------------------------

std::map<EndPointRegistry::Id, EndPointRegistry::Entry> EndPointRegistry::all() const {
  const std::lock_guard lock(mutex_);
  return endpoints_;
}

std::shared_ptr<EndPointCore> EndPointRegistry::find(Id id) const {
  const std::lock_guard lock(mutex_);
  const auto found = endpoints_.find(id);
  return found != endpoints_.end() ? found->second.endpoint : nullptr;
}

std::optional<EndPointRegistry::Id> EndPointRegistry::id_of(const EndPointCore& endpoint) const {
  const std::lock_guard lock(mutex_);
  const auto found =
      std::ranges::find_if(endpoints_, [&](const auto& each) { return each.second.endpoint.get() == &endpoint; });
  if (found == endpoints_.end()) return {};
  return found->first;
}

std::vector<std::shared_ptr<EndPointCore>> EndPointRegistry::alive() const {
  return all_that([](const EndPointCore& endpoint) { return endpoint.alive(); });
}

/// Needs no memory, because it is called on threads that cannot handle a lack of memory.
void EndPointRegistry::forget(Id id) noexcept {
  // Declared before the lock, so that they are destroyed after the unlock: that may take long.
  std::map<Id, Entry>::node_type forgotten;
  std::vector<std::shared_ptr<EndPointCore>> dropped;
  const std::lock_guard lock(mutex_);
  forgotten = endpoints_.extract(id);
  if (!forgotten) return;
  const Entry& entry = forgotten.mapped();
  loop_.unwatch(entry.endpoint->connector().watched().fd);
  if (is_server_) change_places_locked(entry.source, {.endpoints = -1});
  [[maybe_unused]] const Status pruned = or_out_of_memory([&] {  // else the next call does it
    dropped = prune_unclaimed_locked();
    return Status();
  });
}

// Endpoints that the application has not accepted ---------------------------------------------------------------------

void EndPointRegistry::offer(const std::shared_ptr<EndPointCore>& endpoint) {
  std::vector<std::shared_ptr<EndPointCore>> dropped;  // destroyed without the lock, as in forget()
  const std::lock_guard lock(mutex_);
  unclaimed_.push_back(endpoint);
  dropped = prune_unclaimed_locked();
  changed_.notify_all();
}

Result<std::shared_ptr<EndPointCore>> EndPointRegistry::accept(Deadline deadline, std::uint16_t port) {
  std::unique_lock lock(mutex_);
  if (!wait(changed_, lock, deadline, [this] { return !unclaimed_.empty() || closed_; })) {
    return make_error(Errc::kTimeout, "no client connected to port " + std::to_string(port) + " in time");
  }
  if (closed_) return stopped_error();
  std::shared_ptr<EndPointCore> endpoint = std::move(unclaimed_.front());
  unclaimed_.pop_front();
  return endpoint;
}

/// Drops ended endpoints that the application has not accepted. Endpoints that hooks have served need no accept().
/// Endpoints in ThreadMode::kApplication are kept, up to kMaxEndedUnclaimed, because their completions can still be
/// polled.
std::vector<std::shared_ptr<EndPointCore>> EndPointRegistry::prune_unclaimed_locked() {
  auto ended = std::ranges::count_if(unclaimed_, [](const auto& endpoint) { return !endpoint->alive(); });
  std::vector<std::shared_ptr<EndPointCore>> dropped;
  dropped.reserve(static_cast<std::size_t>(ended));  // reserved first: without memory for it, the list stays unchanged
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

void EndPointRegistry::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

void EndPointRegistry::drop_unclaimed() {
  std::deque<std::shared_ptr<EndPointCore>> unclaimed;  // destroyed without the lock, as in forget()
  const std::lock_guard lock(mutex_);
  unclaimed.swap(unclaimed_);
}

}  // namespace rdmacomm
