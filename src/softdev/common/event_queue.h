// event_queue.h - asynchronous events of one context.
#pragma once

#include <infiniband/verbs.h>

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>

#include "base/unique_fd.h"

namespace rdmacomm::softdev {

/// The event counters of an object that can have asynchronous events. Guarded by the mutex of EventQueue.
struct EventSource {
  std::uint32_t taken = 0;
  std::uint32_t acknowledged = 0;
  bool retired = false;
};

/// The events that get_async_event returns. The descriptor (ibv_context::async_fd) is readable exactly while an event
/// waits. A program that finds it readable calls get_async_event, which blocks if no event waits.
/// Threads: any.
class EventQueue {
 public:
  /// Returns  0, or an errno value.
  [[nodiscard]] int open();
  [[nodiscard]] int fd() const noexcept { return fd_.get(); }

  /// source  belongs to the object that `event` is about.
  void push(const ibv_async_event& event, EventSource& source);
  /// Takes the next event. Returns false: no event waits.
  [[nodiscard]] bool take(ibv_async_event& event);
  /// Blocks until fd() is readable, unless fd() is non-blocking. Returns 0, or -1 and errno, as ibv_get_async_event
  /// does.
  [[nodiscard]] int wait() const;
  void acknowledge(EventSource& source);
  /// Drops the events of `source` that nobody has taken. Then waits until all taken events are acknowledged.
  void retire(EventSource& source);

 private:
  struct Waiting {
    ibv_async_event event;
    EventSource* source;
  };

  void count_down(std::size_t events) noexcept;

  UniqueFd waiting_count_;  // an eventfd, always non-blocking: the number of waiting events
  UniqueFd fd_;             // an epoll that watches waiting_count_; the application may make it non-blocking
  std::mutex mutex_;
  std::condition_variable acknowledged_;
  std::deque<Waiting> waiting_;
};

}  // namespace rdmacomm::softdev
