// device_events.h - what a device reports by itself: its asynchronous events, and that it was removed.
// Layer: device. Uses: base, verbs.   Who reads them, and why so: docs/adr/0009-who-reads-device-events.md
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

/// The events of one opened device, for all that are interested. The verbs hand each event to one reader only, so
/// there is one, take(), which shows it to every subscriber.
///
/// The rule: of a device that a session uses, the application does not call ibv_get_async_event(), which would take
/// events away from the session; it subscribes. Sessions call take(); where none runs, the application does, when fd()
/// is readable. What becomes of ports, GIDs and the like is logged here, once: PORT_ERR as a warning, the rest at level
/// 1.
/// Threads: all functions from any thread.
/// Lifetime: of its DeviceCore; outlives its subscriptions.
class DeviceEvents {
 public:
  /// Has the function of a subscriber called, until it is destroyed or reset(); no call is under way after that.
  /// Movable; may be empty.
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

  /// context  of `api`; outlives this
  DeviceEvents(const verbs::Api& api, ibv_context& context);
  DeviceEvents(const DeviceEvents&) = delete;
  DeviceEvents& operator=(const DeviceEvents&) = delete;

  /// As RDMADevice::subscribe().
  [[nodiscard]] Result<Subscription> subscribe(std::function<void(const DeviceEvent&)> function);
  /// Readable when take() has something to do; for edge-triggered epoll, as several may watch it.
  [[nodiscard]] int fd() const noexcept { return context_.async_fd; }
  /// Takes the events that wait, shows each to the subscribers and acknowledges it; and looks whether the device is
  /// still there, which some drivers do not tell by an event: so call it now and then besides. Does not block. Nothing
  /// is done before the first subscribe(). Cost: two system calls where nothing has happened.
  void take();
  /// ok; kDeviceLost from the moment that take() has found it so.
  [[nodiscard]] Status health() const;

 private:
  void read_all();
  void show(const DeviceEvent& event);
  void look_for_device();
  void lose_device(const std::string& why);
  void unsubscribe(std::uint64_t id) noexcept;

  const verbs::Api& api_;
  ibv_context& context_;
  const std::optional<ino_t> directory_;  // of the device, in sysfs; empty: it has none, or there is no sysfs

  std::mutex mutex_;  // one event at a time; guards what follows, up to failure_mutex_
  std::map<std::uint64_t, std::function<void(const DeviceEvent&)>> subscribers_;
  std::uint64_t last_id_ = 0;
  bool readable_ = false;

  mutable std::mutex failure_mutex_;  // never held while another is taken
  std::optional<Error> failure_;
};

}  // namespace rdmacomm
