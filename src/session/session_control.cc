// SessionCore: what the control thread does, and what the device reports to it.
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
    default: return endpoint.uses(event.element.qp);  // no other kind of event is a failure
  }
}

}  // namespace

Deadline SessionCore::take_turn() {
  queues_.reap();
  acceptor_.take_turn();
  end_failed();
  tell_of_low_pools();
  return send_heartbeats().sooner(acceptor_.next_turn());
}

void SessionCore::on_ready(Id id) {
  if (id == kListenerId) return acceptor_.accept_connections();
  if (id == kDeviceId) return device()->events().take();
  end_failed();  // before the peer is heard, who may have lost the same device: this side's own news names it best
  check_endpoint(id);
}

void SessionCore::on_shortage(const Status& why) {
  const Status said = or_out_of_memory([&] {
    acceptor_.pause(why);
    return Status();
  });
  if (!said) acceptor_.pause_silently();
}

// Watching ------------------------------------------------------------------------------------------------------------

void SessionCore::check_endpoint(Id id) {
  const auto endpoint = registry_.find(id);
  if (!endpoint) return;
  endpoint->check_connection();
  end_if_over(id, endpoint);
}

/// When the next ones are due: never, if there is nobody to give them to.
Deadline SessionCore::send_heartbeats() {
  if (!heartbeat_.passed()) return heartbeat_;
  const auto endpoints = registry_.all();
  if (endpoints.empty()) return Deadline::never();
  device()->events().take();  // not every driver tells by an event that the device is gone
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

// What the device reports ---------------------------------------------------------------------------------------------

/// Before the control thread. The device may be shared: whichever session wakes takes the events, for all.
Status SessionCore::watch_device() {
  DeviceEvents& events = device()->events();
  auto subscribed = events.subscribe([this](const DeviceEvent& event) { on_device_event(event); });
  if (!subscribed) return subscribed.status();
  device_events_ = std::move(*subscribed);
  return loop_.watch(events.fd(), EPOLLIN | EPOLLET, kDeviceId, "the events of " + device()->name());
}

/// On the control thread of any session that has this device, while the event is not acknowledged: nothing is ended here.
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

/// The hooks hear of it when their connection has ended, which fail() does: so on_established has been called by then.
void SessionCore::end_failed() {
  std::vector<Failed> failed;
  {
    const std::lock_guard lock(mutex_);
    failed.swap(failed_);
  }
  for (const Failed& each : failed) each.endpoint->fail(each.why);
}

/// The device's events wake this thread. If only a poll has found that a pool runs low, this finds it a second later at most.
void SessionCore::tell_of_low_pools() {
  for (const auto& pool : queues_.take_low()) hooks_.on_receives_low(pool);
}

// The end -------------------------------------------------------------------------------------------------------------

void SessionCore::tear_down() {
  stop_listening();
  acceptor_.refuse_waiting();
  handshakes_.join();  // they have ended: stop() has shut their connections down
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
  queues_.end();  // the others' hooks come from their threads
}

}  // namespace rdmacomm
