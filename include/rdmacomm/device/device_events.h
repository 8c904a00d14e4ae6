// device_events.h - what a device reports by itself: its asynchronous events, and that it was removed.
// Layer: device. Uses: base, verbs.   Who reads them, and why so: docs/adr/0009-who-reads-device-events.md
#pragma once

#include <infiniband/verbs.h>

#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "rdmacomm/base/result.h"
#include "rdmacomm/verbs/api.h"

namespace rdmacomm {

/// One report. Good as long as the call that brings it.
struct DeviceEvent {
  /// As the verbs hand it out. The queue pair or completion queue in it exists while the call lasts. That the device was
  /// removed comes as IBV_EVENT_DEVICE_FATAL, also where the verbs do not tell.
  ibv_async_event verbs{};
  /// Why what the event is about is over; empty: it goes on.
  ///   kDeviceLost        the device: DEVICE_FATAL
  ///   kLocalQueuePair    a queue pair: QP_FATAL (iWARP: no, its connection tells), QP_REQ_ERR, QP_ACCESS_ERR
  ///                      a shared receive queue, and the queue pairs that receive from it: SRQ_ERR
  ///   kCompletionFailed  a completion queue, and the queue pairs on it: CQ_ERR
  std::optional<Error> failure{};
};

/// The events of one opened device, for all that are interested. The verbs hand each event to one reader only, so
/// there is one, take(), which shows it to every subscriber.
///
/// The rule: of a device that a session uses, the application does not call ibv_get_async_event(), which would take events
/// away from the session; it subscribes. Sessions call take(); where none runs, the application does, when fd() is
/// readable. What becomes of ports, GIDs and the like is logged here, once: PORT_ERR as a warning, the rest at level 1.
/// Threads: all functions from any thread.
/// Lifetime: of its RDMADevice; outlives its subscriptions.
class DeviceEvents {
 public:
  /// Threads: one event at a time, on any thread that calls take(). A subscriber takes note and returns: it does not wait,
  /// does not destroy queue pairs or completion queues (that waits until the event is acknowledged, which is after the
  /// call), and does not subscribe or unsubscribe.
  class Subscriber {
   public:
    virtual void on_device_event(const DeviceEvent& event) = 0;

   protected:
    ~Subscriber() = default;
  };

  /// Ends, with its destruction or reset(), that a subscriber is called; no call is under way after that. Movable; may be
  /// empty.
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
    Subscription(DeviceEvents& events, Subscriber& subscriber) noexcept : events_(&events), subscriber_(&subscriber) {}

    DeviceEvents* events_ = nullptr;
    Subscriber* subscriber_ = nullptr;
  };

  /// context  of `api`; outlives this
  DeviceEvents(const verbs::Api& api, ibv_context& context);
  DeviceEvents(const DeviceEvents&) = delete;
  DeviceEvents& operator=(const DeviceEvents&) = delete;

  /// From now on `subscriber` sees all events. The first subscription makes fd() non-blocking.
  ///
  /// subscriber  outlives the subscription
  /// Returns   what the system said; the context names the device
  [[nodiscard]] Result<Subscription> subscribe(Subscriber& subscriber);
  /// Readable when take() has something to do; for edge-triggered epoll, as several may watch it.
  [[nodiscard]] int fd() const noexcept { return context_.async_fd; }
  /// Takes the events that wait, shows each to the subscribers and acknowledges it; and looks whether the device is still
  /// there, which some drivers do not tell by an event: so call it now and then besides. Does not block. Nothing is done
  /// before the first subscribe(). Cost: two system calls where nothing has happened.
  void take();
  /// ok; kDeviceLost from the moment that take() has found it so.
  [[nodiscard]] Status health() const;

 private:
  void read_all();
  void show(const DeviceEvent& event);
  void look_for_device();
  void lose_device(const std::string& why);
  void unsubscribe(const Subscriber& subscriber) noexcept;

  const verbs::Api& api_;
  ibv_context& context_;
  const std::optional<ino_t> directory_;  // of the device, in sysfs; empty: it has none, or there is no sysfs

  std::mutex mutex_;  // one event at a time; guards subscribers_ and readable_
  std::vector<Subscriber*> subscribers_;
  bool readable_ = false;

  mutable std::mutex failure_mutex_;  // never held while another is taken
  std::optional<Error> failure_;
};

}  // namespace rdmacomm
