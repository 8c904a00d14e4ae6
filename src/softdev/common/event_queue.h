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

/// What an object that events are about has for them. Guarded by the context's event queue.
struct EventSource {
  std::uint32_t taken = 0;
  std::uint32_t acknowledged = 0;
  bool retired = false;
};

/// What get_async_event hands out. Its descriptor (ibv_context::async_fd) is readable while events wait, and only then: a program
/// that found it readable calls get_async_event, which blocks if there is no event.
/// Threads: any.
class EventQueue {
 public:
  /// 0, or an errno value.
  [[nodiscard]] int open();
  [[nodiscard]] int fd() const noexcept { return fd_.get(); }

  /// `event` is about the object that `source` belongs to.
  void push(const ibv_async_event& event, EventSource& source);
  /// The next event; false: none waits.
  [[nodiscard]] bool take(ibv_async_event& event);
  /// Blocks until fd() is readable, unless it is non-blocking: 0, or -1 and errno as ibv_get_async_event has it.
  [[nodiscard]] int wait() const;
  void acknowledge(EventSource& source);
  /// Drops the events of `source` that nobody took and waits until all taken ones are acknowledged.
  void retire(EventSource& source);

 private:
  struct Waiting {
    ibv_async_event event;
    EventSource* source;
  };

  void count_down(std::size_t events) noexcept;

  UniqueFd waiting_count_;  // an eventfd: how many events wait
  UniqueFd fd_;             // epoll: of that. The application may make it non-blocking, and the other one is always
  std::mutex mutex_;
  std::condition_variable acknowledged_;
  std::deque<Waiting> waiting_;
};

}  // namespace rdmacomm::softdev
