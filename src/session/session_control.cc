// SessionCore: the work of the control thread, and the events of the device.
#include <sys/epoll.h>

#include <utility>

#include "base/out_of_memory.h"
#include "session/session_core.h"

namespace rdmacomm {
namespace {

bool concerns(const ibv_async_event& event, const EndPointCore& endpoint) {
  switch (event.event_type) {
    case IBV_EVENT_DEVICE_FATAL: return true;
    case IBV_EVENT_CQ_ERR: return endpoint.uses(event.element.cq);
    case IBV_EVENT_SRQ_ERR: return endpoint.uses(event.element.srq);
    default: return endpoint.uses(event.element.qp);  // no other event is a failure
  }
}

}  // namespace

Deadline SessionCore::take_turn() {
  queues_.reap();
  acceptor_.take_turn();
  end_failed();
  report_low_pools();
  return send_heartbeats().sooner(acceptor_.next_turn());
}

void SessionCore::on_ready(Id id) {
  if (id == kListenerId) return acceptor_.accept_connections();
  if (id == kDeviceId) return device()->events().take();
  end_failed();  // before the peer's message: if both lost the same device, the local report is more exact
  check_endpoint(id);
}

void SessionCore::on_shortage(const Status& why) {
  const Status handled = or_out_of_memory([&] {
    acceptor_.pause(why);
    return Status();
  });
  if (!handled) acceptor_.pause_silently();
}

// Watching ------------------------------------------------------------------------------------------------------------

void SessionCore::check_endpoint(Id id) {
  const auto endpoint = registry_.find(id);
  if (!endpoint) return;
  endpoint->check_connection();
  end_if_over(id, endpoint);
}

/// Returns the time of the next heartbeats; never, if no endpoint exists.
Deadline SessionCore::send_heartbeats() {
  if (!heartbeat_.passed()) return heartbeat_;
  const auto endpoints = registry_.all();
  if (endpoints.empty()) return Deadline::never();
  device()->events().take();  // not every driver reports the loss of the device with an event
  end_failed();
  const auto now = Deadline::Clock::now();
  for (const auto& [id, entry] : endpoints) {
    if (entry.endpoint->setting_up()) continue;
    entry.endpoint->keep_alive(now, options_.silent_peer_after);
    if (entry.watched) end_if_over(id, entry.endpoint);
  }
  heartbeat_ = Deadline::at(now + Connector::kHeartbeatPeriod);
  return heartbeat_;
}

// Events of the device ------------------------------------------------------------------------------------------------

/// Call it before the control thread starts. If sessions share the device, the session that wakes up takes the events
/// for all.
Status SessionCore::watch_device() {
  DeviceEvents& events = device()->events();
  auto subscribed = events.subscribe([this](const DeviceEvent& event) { on_device_event(event); });
  if (!subscribed) return subscribed.status();
  device_events_ = std::move(*subscribed);
  return loop_.watch(events.fd(), EPOLLIN | EPOLLET, kDeviceId, "the events of " + device()->name());
}

/// Called on the control thread of any session with this device, before the event is acknowledged. So it must not end
/// anything.
void SessionCore::on_device_event(const DeviceEvent& event) {
  const ibv_async_event& native = event.native_handle();
  if (native.event_type == IBV_EVENT_SRQ_LIMIT_REACHED) {
    if (queues_.note_low(native.element.srq)) loop_.wake();
    return;
  }
  if (!event.failure()) return;
  auto concerned = registry_.all_that([&](const EndPointCore& endpoint) { return concerns(native, endpoint); });
  if (concerned.empty()) return;
  const std::lock_guard lock(mutex_);
  for (auto& endpoint : concerned) failed_.push_back({std::move(endpoint), *event.failure()});
  loop_.wake();
}

/// Calls fail(), which ends the connection. The hooks are called after that end, so on_established was called before.
void SessionCore::end_failed() {
  std::vector<Failed> failed;
  {
    const std::lock_guard lock(mutex_);
    failed.swap(failed_);
  }
  for (const Failed& each : failed) each.endpoint->fail(each.why);
}

/// Events of the device wake this thread. If only a poll has found that a pool is low, this finds it after at most a
/// second.
void SessionCore::report_low_pools() {
  for (const auto& pool : queues_.take_low()) hooks_.on_receives_low(pool);
}

// The end -------------------------------------------------------------------------------------------------------------

void SessionCore::tear_down() {
  stop_listening();
  acceptor_.refuse_waiting();
  handshakes_.join();  // they end, because stop() has shut their connections down
  end_endpoints();
  registry_.drop_unclaimed();
  std::vector<Failed> failed;
  const std::lock_guard lock(mutex_);
  failed.swap(failed_);
  move_to(State::kStopped);
}

void SessionCore::end_endpoints() {
  for (const auto& [id, entry] : registry_.all()) {
    entry.endpoint->stop();
    if (entry.endpoint->config().thread_mode == ThreadMode::kApplication) end_endpoint(id, entry.endpoint);
  }
  queues_.end();  // its threads call the hooks of the other endpoints
}

}  // namespace rdmacomm
