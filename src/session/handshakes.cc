#include "session/handshakes.h"

#include <algorithm>
#include <utility>

#include "base/start_thread.h"
#include "session/stopped_error.h"

namespace rdmacomm {

Handshakes::Id Handshakes::next_id() {
  const std::lock_guard lock(mutex_);
  return next_id_++;
}

Result<Handshakes::Id> Handshakes::begin() {
  const std::lock_guard lock(mutex_);
  if (stopped_) return stopped_error();
  ++clients_;
  return next_id_++;
}

Status Handshakes::connected(Id id, std::shared_ptr<Connector> connector) {
  const std::lock_guard lock(mutex_);
  if (stopped_) return stopped_error();
  all_[id].connector = std::move(connector);
  return {};
}

void Handshakes::end(Id id) {
  const std::lock_guard lock(mutex_);
  all_.erase(id);
  --clients_;
  changed_.notify_all();
}

/// Holds the lock, so that finished() runs only after the thread was stored.
Status Handshakes::start(Id id, std::shared_ptr<Connector> connector, std::function<void()> run) {
  const std::lock_guard lock(mutex_);
  if (stopped_) return stopped_error();
  Handshake& handshake = all_[id];
  handshake.connector = std::move(connector);
  Status begun = start_thread(handshake.thread, "rdma-handshake", [this, id, run = std::move(run)] {
    /// A destructor, because a hook may end its thread.
    struct Finished {
      Handshakes& handshakes;
      const Id id;
      ~Finished() { handshakes.finished(id); }
    };
    const Finished finished{*this, id};
    run();
  });
  if (!begun) all_.erase(id);
  return begun;
}

void Handshakes::finished(Id id) {
  const std::lock_guard lock(mutex_);
  // If it is not there, join() has taken it and waits for it.
  if (const auto own = all_.find(id); own != all_.end()) own->second.done = true;
  loop_.wake();
}

void Handshakes::join_finished(const std::function<void(Id)>& report) {
  std::map<Id, Handshake> done;
  {
    const std::lock_guard lock(mutex_);
    for (auto each = all_.begin(); each != all_.end();) {
      const auto next = std::next(each);
      if (each->second.done) done.insert(all_.extract(each));
      each = next;
    }
  }
  for (auto& [id, handshake] : done) {
    report(id);
    handshake.thread.join();
  }
}

void Handshakes::hand_over(Id id) {
  const std::lock_guard lock(mutex_);
  if (const auto own = all_.find(id); own != all_.end()) own->second.connector = nullptr;
}

std::shared_ptr<Connector> Handshakes::connector(Id id) const {
  const std::lock_guard lock(mutex_);
  const auto found = all_.find(id);
  return found != all_.end() ? found->second.connector : nullptr;
}

std::shared_ptr<Connector> Handshakes::find(const std::string& peer_address) const {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find_if(all_, [&](const auto& each) {
    const Handshake& handshake = each.second;
    return handshake.connector && !handshake.done && handshake.connector->peer_address() == peer_address;
  });
  return found != all_.end() ? found->second.connector : nullptr;
}

std::vector<std::shared_ptr<Connector>> Handshakes::stop() {
  std::vector<std::shared_ptr<Connector>> connectors;
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  for (const auto& [id, handshake] : all_) {
    if (handshake.connector) connectors.push_back(handshake.connector);
  }
  return connectors;
}

void Handshakes::join() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return clients_ == 0; });
  std::map<Id, Handshake> rest;
  rest.swap(all_);
  lock.unlock();
  for (auto& [id, handshake] : rest) handshake.thread.join();
}

}  // namespace rdmacomm
