// SessionCore: what the device reports by itself.
#include <sys/epoll.h>

#include "base/system_call.h"
#include "channel/receive_pool_core.h"
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

/// Before the control thread. The device may be shared: whichever session wakes takes the events, for all.
Status SessionCore::watch_device() {
  DeviceEvents& events = device()->events();
  auto subscribed = events.subscribe([this](const DeviceEvent& event) { on_device_event(event); });
  if (!subscribed) return subscribed.status();
  device_events_ = std::move(*subscribed);
  epoll_event event{};
  event.events = EPOLLIN | EPOLLET;
  event.data.u64 = kDeviceId;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, events.fd(), &event) == 0) return {};
  return make_error(last_system_error(), "cannot watch the events of " + device()->name());
}

/// On the control thread of any session that has this device, while the event is not acknowledged: nothing is ended here.
void SessionCore::on_device_event(const DeviceEvent& event) {
  const std::lock_guard lock(mutex_);
  const ibv_async_event& native = event.native_handle();
  if (native.event_type == IBV_EVENT_SRQ_LIMIT_REACHED) return note_low_locked(native.element.srq);
  if (!event.failure()) return;
  for (const auto& [id, endpoint] : endpoints_) {
    if (concerns(native, *endpoint)) failed_.push_back({endpoint, *event.failure()});
  }
  if (!failed_.empty() && wake_event_) wake_event_->signal();
}

void SessionCore::note_low_locked(const ibv_srq* queue) {
  for (const auto& [key, pool] : receive_pools_) {
    if (pool->queue().get() != queue) continue;
    pool->note_low();
    if (wake_event_) wake_event_->signal();
  }
}

/// The device's events wake this thread; what only who polls has found, it finds with the next sign of life.
void SessionCore::tell_of_low_pools() {
  std::vector<std::shared_ptr<ReceivePoolCore>> low;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [key, pool] : receive_pools_) {
      if (pool->take_low_notice()) low.push_back(pool);
    }
  }
  for (const auto& pool : low) hooks_.on_receives_low(pool);
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

}  // namespace rdmacomm
