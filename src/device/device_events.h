// device_events.h - a device's asynchronous events, and its removal.
// Layer: device. Uses: base, verbs.   Which thread reads them, and why: docs/adr/0009-reading-device-events.md
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "rdmacomm/device.h"
#include "rdmacomm/result.h"
#include "verbs/api.h"

namespace rdmacomm {

/// The events of one opened device, for any number of subscribers. The verbs give each event to one reader only.
/// Therefore the only reader is take(), which passes each event to every subscriber.
///
/// The rule: if a session uses the device, the application subscribes instead of calling ibv_get_async_event(), which
/// would take events away from the session. Sessions call take(). Without a session the application calls it when fd()
/// is readable. Events of ports, GIDs and the like are logged here, once: PORT_ERR as a warning, the rest at level 1.
/// Threads: all functions from any thread.
/// Lifetime: that of its DeviceCore; outlives its subscriptions.
class DeviceEvents {
 public:
  /// While it exists, the subscriber's function is called for each event. After the destructor or reset(), no call is
  /// running any more. Movable; may be empty.
  class Subscription {
   public:
    Subscription() = default;
    Subscription(Subscription&& other) noexcept;
    Subscription& operator=(Subscription&& other) noexcept;
    Subscription(const Subscription&) = delete;
    Subscription& operator=(const Subscription&) = delete;
    ~Subscription() { reset(); }
    void reset() noexcept;

   private:
    friend class DeviceEvents;
    Subscription(DeviceEvents& events, std::uint64_t id) noexcept : events_(&events), id_(id) {}

    DeviceEvents* events_ = nullptr;
    std::uint64_t id_ = 0;
  };

  /// context  a context of `api`; outlives this object
  DeviceEvents(const verbs::Api& api, ibv_context& context);
  DeviceEvents(const DeviceEvents&) = delete;
  DeviceEvents& operator=(const DeviceEvents&) = delete;

  /// As RDMADevice::subscribe().
  [[nodiscard]] Result<Subscription> subscribe(std::function<void(const DeviceEvent&)> function);
  /// Readable when take() has events to read; for edge-triggered epoll, because several threads may watch it.
  [[nodiscard]] int fd() const noexcept { return context_.async_fd; }
  /// Reads the pending events, shows each to the subscribers and acknowledges it. It also checks whether the device
  /// still exists: some drivers report a removal by no event, so call it at intervals, too. Does not block. Does
  /// nothing before the first subscribe(). Cost: two system calls if no event is pending.
  void take();
  /// ok; kDeviceLost once take() has found that the device was removed or has failed.
  [[nodiscard]] Status health() const;

 private:
  void read_all();
  void show(const DeviceEvent& event);
  void look_for_device();
  void lose_device(const std::string& why);
  void unsubscribe(std::uint64_t id) noexcept;

  const verbs::Api& api_;
  ibv_context& context_;
  const std::optional<ino_t> directory_;  // of the device, in sysfs; empty: no directory, or no sysfs

  std::mutex mutex_;  // one event at a time; guards the members below, up to failure_mutex_
  std::map<std::uint64_t, std::function<void(const DeviceEvent&)>> subscribers_;
  std::uint64_t last_id_ = 0;
  bool readable_ = false;

  mutable std::mutex failure_mutex_;  // no other lock is taken while it is held
  std::optional<Error> failure_;
};

}  // namespace rdmacomm
