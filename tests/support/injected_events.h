// injected_events.h - soft0 with asynchronous events that a test injects between soft0's own events.
#pragma once

#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <utility>

#include "base/unique_fd.h"
#include "device/device_core.h"
#include "softdev/common/api.h"

namespace rdmacomm::testing {

/// One per program, because the table's entries have no argument to find it by. Its devices look like RoCE, so that
/// connections use TCP. Threads: any.
class InjectedEvents {
 public:
  InjectedEvents() { current() = this; }
  InjectedEvents(const InjectedEvents&) = delete;
  InjectedEvents& operator=(const InjectedEvents&) = delete;
  ~InjectedEvents() { current() = nullptr; }

  [[nodiscard]] static std::shared_ptr<DeviceCore> open() {
    auto opened = DeviceCore::open_from(api(), {.name = "soft0"});
    EXPECT_TRUE(opened.has_value()) << opened.status().message();
    return std::move(*opened);
  }
  /// Injects an event, which `device` returns next. Unlike a real event, it does not delay the destruction of a queue
  /// pair until it is acknowledged.
  void raise(const DeviceCore& device, const ibv_async_event& event) {
    const std::lock_guard lock(mutex_);
    waiting_.push_back({device.context(), event});
    // soft0's descriptor is an epoll descriptor. EEXIST: an earlier event was injected already.
    epoll_event readable{};
    readable.events = EPOLLIN;
    (void)epoll_ctl(device.context()->async_fd, EPOLL_CTL_ADD, wake_.get(), &readable);
    EXPECT_EQ(eventfd_write(wake_.get(), 1), 0);
  }
  void raise(const DeviceCore& device, ibv_event_type type) {
    ibv_async_event event{};
    event.event_type = type;
    raise(device, event);
  }
  [[nodiscard]] std::size_t acknowledged() const {
    const std::lock_guard lock(mutex_);
    return acknowledged_;
  }

 private:
  struct Waiting {
    ibv_context* context;
    ibv_async_event event;
  };

  static InjectedEvents*& current() {
    static InjectedEvents* injected = nullptr;
    return injected;
  }
  static const verbs::Api& api() {
    static const verbs::Api table = [] {
      verbs::Api injecting = softdev::api();
      injecting.get_async_event = get;
      injecting.ack_async_event = acknowledge;
      return injecting;
    }();
    return table;
  }
  static int get(ibv_context* context, ibv_async_event* event) {
    InjectedEvents& self = *current();
    const std::lock_guard lock(self.mutex_);
    const auto found = std::ranges::find(self.waiting_, context, &Waiting::context);
    if (found == self.waiting_.end()) return softdev::api().get_async_event(context, event);
    eventfd_t count = 0;
    EXPECT_EQ(eventfd_read(self.wake_.get(), &count), 0);
    *event = found->event;
    self.waiting_.erase(found);
    self.injected_ = true;
    return 0;
  }
  static void acknowledge(ibv_async_event* event) {
    InjectedEvents& self = *current();
    const std::lock_guard lock(self.mutex_);
    ++self.acknowledged_;
    if (!std::exchange(self.injected_, false)) softdev::api().ack_async_event(event);
  }

  const UniqueFd wake_{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE)};
  mutable std::mutex mutex_;
  std::deque<Waiting> waiting_;
  bool injected_ = false;  // an event was returned and is not acknowledged yet; at most one at a time
  std::size_t acknowledged_ = 0;
};

}  // namespace rdmacomm::testing
